"""Reading YAML: places are kept, words mean what kubectl takes them for, and bombs do not go off."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.errors import Problem
from callsheet.spec.dump import dump
from callsheet.spec.yaml_reader import MAX_NODES, Document, Unreadable, decode, read
from callsheet.spec.yaml_scalars import resolve_plain
from callsheet.spec.yaml_tree import find, place, to_data


def documents(text: str) -> list[Document]:
    found, problems = read(text)
    assert problems == []
    return found


def problem(data: str | bytes) -> Problem:
    """The one problem that makes a text unreadable."""
    try:
        _, problems = read(decode(data.encode() if isinstance(data, str) else data))
    except Unreadable as error:
        problems = [error.problem]
    (found,) = problems
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("On", True),
        ("y", True),
        ("NO", False),
        ("off", False),
        ("true", True),
        ("yEs", "yEs"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("8", 8),
        ("-8", -8),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 15),
        ("-0b11", -3),
        ("08", 8.0),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.2.3", "1.2.3"),
        ("9" * 5000, "9" * 5000),
        ("+", "+"),
        ("text", "text"),
    ],
)
def test_unquoted_words_mean_what_kubectl_takes_them_for(text: str, value: Any) -> None:
    found = resolve_plain(text)
    assert found == value
    assert type(found) is type(value)


def test_quotes_and_tags_decide_the_type() -> None:
    (document,) = documents("['8', \"yes\", !!str 8, !!int '8', ! 8]")
    assert to_data(document.root) == ["8", "yes", "8", 8, "8"]


def test_every_piece_knows_its_line_and_column() -> None:
    (document,) = documents("# first\nspec:\n  é: [a, {b: c}]\n")
    assert place(document.root, ("spec", "é", 1, "b")) == (3, 14, "")
    assert place(document.root, ("spec", "é"), key=True) == (3, 3, "")
    assert place(document.root, ("spec", "é")) == (3, 6, "")


def test_a_text_holds_several_documents_and_empty_ones_are_skipped() -> None:
    found = documents("a: 1\n---\n# nothing\n---\nb: 2\n...\n")
    assert [to_data(document.root) for document in found] == [{"a": 1}, {"b": 2}]
    assert [document.text for document in found] == ["a: 1\n", "---\nb: 2\n..."]


def test_anchors_aliases_and_merges_work() -> None:
    text = "x: &x {b: 1, c: 2}\nz: &z {d: 4}\nm: {<<: *x, c: 3}\nl: {<<: [*x, *z]}\nq: {'<<': 1}\n"
    data = to_data(documents(text)[0].root)
    assert data["m"] == {"b": 1, "c": 3}
    assert data["l"] == {"b": 1, "c": 2, "d": 4}
    assert data["q"] == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "path", "message", "line", "column"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", "duplicate key 'a', first used in line 1", 3, 1),
        ("l:\n- {name: x, a: 1, a: 2}\n", "l[x].a", "first used in line 2", 2, 19),
        ("m: {on: 1}\n", "m.on", "YAML reads the unquoted key on as true", 1, 5),
        ("m: {0x1: 1}\n", "m.0x1", "YAML reads the unquoted key 0x1 as a number", 1, 5),
        ("m: {[a]: 1}\n", "m", "a list cannot be a key", 1, 4),
        ("m: {{a}}\n", "m", "a mapping cannot be a key", 1, 4),
        ("m: !!binary x\n", "m", "unknown tag !!binary", 1, 4),
        ("m: !!python/object:os.system {}\n", "m", "unknown tag", 1, 4),
        ("m: {<<: 3}\n", "m.<<", "<< needs a mapping", 1, 9),
    ],
)
def test_flaws_are_told_with_path_and_place(
    text: str, path: str, message: str, line: int, column: int
) -> None:
    (document,) = documents(text)
    (flaw,) = document.flaws
    assert flaw.path.replace("['<<']", ".<<") == path
    assert message in flaw.message
    assert (flaw.line, flaw.column) == (line, column)
    assert flaw.fix


def test_a_number_may_be_a_key() -> None:
    assert to_data(documents("{8: x}")[0].root) == {"8": "x"}


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a:\n\tb: 1\n", "YAML does not allow a tab here", 2, 1),
        ("a: b: c\n", "unexpected ': '", 1, 5),
        ("a: [1, 2\nb: 3\n", "this list in [ ] is malformed", 2, 2),
        ("a: {b: 1\n", "this mapping in { } is malformed", 2, 1),
        ("a: 'x\nb: 1\n", "this quoted text is not closed (it starts in line 1)", 3, 1),
        ("- a\nb: 1\n", "among the items of a list", 2, 1),
        ("a: @x\n", "unquoted text cannot start with @", 1, 4),
        ('a: "\\q"\n', "unknown escape sequence", 1, 5),
        ("a: - b\n", "a list cannot start on this line", 1, 4),
        ("a: {x}:{y}\n", "does not fit the surrounding mapping", 1, 7),
        ("a: *b\n", "no anchor for the alias *b", 1, 4),
        ("a: &a\n", "", 0, 0),
        ("a: b\n...\nc: 1\n", "after the end of the document", 3, 1),
        ("a: !<x\n", "invalid YAML", 1, 7),
    ],
)
def test_a_syntax_error_is_a_sentence_at_its_place(text: str, message: str, line: int, column: int) -> None:
    if not message:
        assert to_data(documents(text)[0].root) == {"a": None}
        return
    found = problem(text)
    assert message in found.message
    assert (found.line, found.column) == (line, column)
    assert found.fix


@pytest.mark.parametrize(
    ("data", "message", "line", "column"),
    [
        (b"a: 1\nb: \xff\n", "byte 0xff is not UTF-8", 2, 4),
        ("a: 1\n".encode("utf-16"), "byte 0xff is not UTF-8", 1, 1),
        (b"a: b\x00c\n", "YAML does not allow the character U+0000", 1, 5),
        (b"a: \x1b[0m\n", "the character U+001B", 1, 4),
    ],
)
def test_bytes_that_are_no_text_are_refused(data: bytes, message: str, line: int, column: int) -> None:
    found = problem(data)
    assert message in found.message
    assert (found.line, found.column) == (line, column)


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfa: 1") == "a: 1"


def test_what_was_read_before_a_syntax_error_is_kept() -> None:
    found, problems = read("a: 1\n---\nb: [\n")
    assert [to_data(document.root) for document in found] == [{"a": 1}]
    assert len(problems) == 1


def _alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


def _merge_bomb() -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: *a{i - 1}, k{i}: *a{i - 1}, l{i}: *a{i - 1}}}" for i in range(1, 40)]
    return "\n".join(lines)


def _ladder() -> str:
    """Each anchor is only a little deeper than the one before; all together are far too deep."""
    lines = [f"a0: &a0 {'[' * 30}x{']' * 30}"]
    lines += [f"a{i}: &a{i} {'[' * 30}*a{i - 1} {']' * 30}" for i in range(1, 50)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 10_000_000, "larger than 2 MiB"),
        ("[" * 1_000_000, "nested more than 64 levels"),
        ("{a: " * 100_000, "nested more than 64 levels"),
        ("- " * 100_000, "nested more than 64 levels"),
        ("? " * 100_000, "nested more than 64 levels"),
        ("[" + "a," * 900_000, "more than 100,000 values"),
        (_alias_bomb(), "more than 100,000 values"),
        (_merge_bomb(), "more than 100,000 values"),
        (_ladder(), "nested more than 64 levels"),
        ("a: &a [b, *a]", "*a is inside &a"),
        ('"' + "a" * 2_000_000, "this quoted text is not closed"),
    ],
    ids=[
        "10-MB",
        "brackets",
        "braces",
        "dashes",
        "questions",
        "wide",
        "aliases",
        "merges",
        "ladder",
        "loop",
        "quote",
    ],
)
@pytest.mark.exclusive
def test_bombs_are_refused_quickly(text: str, message: str) -> None:
    """Half a second on a usual machine: six times what libyaml itself takes for as many values as a file may have.

    The two take turns: a machine may be slow for some seconds."""
    largest = "[" + "a," * (MAX_NODES - 2) + "a]"

    def parse() -> None:
        for _ in yaml.parse(largest, Loader=yaml.CSafeLoader):
            pass

    def refuse() -> None:
        assert message in problem(text).message

    # A collection of garbage would go through all that the other tests have left: a quarter of a million objects.
    gc.collect()
    gc.freeze()
    try:
        ratios = [_took(refuse) / _took(parse) for _ in range(5)]
    finally:
        gc.unfreeze()
    assert min(ratios) < 6, ratios


def _took(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(), JSON, min_size=1, max_size=3))
def test_what_is_written_reads_back_as_the_same(data: dict[str, Any]) -> None:
    (document,) = documents(decode(dump(data).encode()))
    assert document.flaws == []
    assert to_data(document.root) == data


@pytest.mark.parametrize(
    "text", ["yes", "y", "8", "0o17", "1e3", "", "~", "1_0", "2001-01-01", "<<", "{index}", "*x"]
)
def test_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    (document,) = documents(dump({"a": [text], text: 1}))
    assert to_data(document.root) == {"a": [text], text: 1}


def test_long_text_is_written_line_by_line() -> None:
    assert dump({"a": "import os\n\nif x:\n  pass\n"}) == "a: |\n  import os\n\n  if x:\n    pass\n"


def test_find_stops_at_the_nearest_piece() -> None:
    (document,) = documents("a: {b: 1}")
    assert to_data(find(document.root, ("a", "c", 3))) == {"b": 1}
