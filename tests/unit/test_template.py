"""The grammar of braces: what is ours is filled in or refused, everything else arrives byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.plan.template import Placeholder, fill, mistake, parse, placeholders

ENDPOINTS = ("trajectories", "parameter-server")


def filled(text: str) -> str:
    return fill(
        parse(text, ENDPOINTS),
        lambda placeholder: (
            f"<{placeholder.head}.{placeholder.tail}>" if placeholder.tail else f"<{placeholder.head}>"
        ),
    )


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{index}", "<index>"),
        ("a{index}b{role}c", "a<index>b<role>c"),
        ("tcp://{trajectories.addr}", "tcp://<trajectories.addr>"),
        ("{parameter-server.port}", "<parameter-server.port>"),
        ("{files.config.py}", "<files.config.py>"),
        ("{mounts.data}/x", "<mounts.data>/x"),
        ('{"i": {index}}', '{"i": <index>}'),
        ("{{index}}", "{index}"),
        ("{{trajectories.addr}}", "{trajectories.addr}"),
        ("{{index}}}", "{index}}"),
    ],
)
def test_our_words_are_filled_in_and_doubled_braces_are_literal(text: str, result: str) -> None:
    assert filled(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{ index }",
        "${index}",
        "$(index)",
        "{print $1}",
        "{a,b}",
        "{0}",
        '{"index": 1}',
        "{{ index }}",
        "{% index %}",
        "{self.model}",
        "{{self.model}}",
        "{HOME}",
        "{x.y.z}",
        "{INDEX}",
    ],
)
def test_every_other_brace_is_the_users(text: str) -> None:
    assert filled(text) == text


@given(st.text())
def test_text_without_our_words_is_never_touched(text: str) -> None:
    template = parse(text, ENDPOINTS)
    if not placeholders(template) and "{{" not in text:
        assert fill(template, lambda placeholder: "") == text


@given(
    st.lists(st.one_of(st.text(alphabet="{}$ab. \n", max_size=4), st.sampled_from(["{index}", "{{index}}"])))
)
def test_filling_never_looks_at_what_was_filled_in(parts: list[str]) -> None:
    text = "".join(parts)
    template = parse(text, ENDPOINTS)
    once = fill(template, lambda placeholder: "{role}")
    assert once.count("{role}") >= len(placeholders(template))


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("{indx}", "did you mean {index}?"),
        ("{replica}", "did you mean {replicas}?"),
        ("{trajectory.addr}", "did you mean {trajectories.addr}?"),
        ("{trajectories.adr}", "did you mean {trajectories.addr}?"),
        ("{trajectories.foo}", "use one of {trajectories.addr}"),
        ("{nobody.port}", "use one of {parameter-server.port}, {trajectories.port}"),
        ("{files.confg.py}", "did you mean {files.config.py}?"),
        ("{mounts.dat}", "did you mean {mounts.data}?"),
    ],
)
def test_a_misspelled_word_is_an_error_with_a_way_out(text: str, fix: str) -> None:
    (placeholder,) = placeholders(parse(text, ENDPOINTS))
    message, way_out = mistake(placeholder, ENDPOINTS, ["config.py"], ["data"])
    assert message.startswith(f"{text} does not resolve")
    assert way_out.startswith(fix)


def test_what_is_right_is_no_mistake() -> None:
    for placeholder in (
        Placeholder("index"),
        Placeholder("trajectories", "all"),
        Placeholder("files", "config.py"),
        Placeholder("mounts", "data"),
    ):
        assert mistake(placeholder, ENDPOINTS, ["config.py"], ["data"]) == ("", "")
