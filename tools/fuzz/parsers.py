"""Parsers that are called directly: each takes bytes, and may only return or raise what its callers know about."""

from __future__ import annotations

import gc
import io
import json
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tools.fuzz.chance import Chance
from tools.fuzz.kept import Corpus, signature
from tools.fuzz.result import Result

SLOWEST: Final = 2.0
"""Seconds that one input may take."""
LARGEST_GROWTH: Final = 100 << 20


@dataclass(frozen=True)
class Parser:
    """One parser."""

    name: str
    call: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...]
    make: Callable[[Chance], bytes]
    """A case."""

    def run(self, seed: int, cases: int, seconds: float, corpus: Corpus) -> Result:
        """So many cases, or as many as there is time for."""
        result, begun, before = Result(self.name), time.monotonic(), _memory()
        for data in corpus.inputs:
            self.try_(data, result, corpus, seed)
        chance = Chance(f"{self.name}-{seed}")
        while result.cases < cases and time.monotonic() - begun < seconds:
            data = (
                chance.bytes_changed(chance.choice(corpus.inputs))
                if corpus.inputs and chance.random() < 0.2
                else self.make(chance)
            )
            self.try_(data, result, corpus, seed)
        gc.collect()
        result.seconds, result.growth = time.monotonic() - begun, max(0, _memory() - before)
        if result.growth > LARGEST_GROWTH:
            result.failures.append(f"{self.name}: {result.growth:,} bytes of memory more than before")
        return result

    def try_(self, data: bytes, result: Result, corpus: Corpus, seed: int) -> None:
        """One case."""
        result.cases += 1
        begun = time.perf_counter()
        outcome: object = "fine"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.call(data)
        except self.allowed as error:
            outcome = error
        except BaseException as error:  # noqa: BLE001 - this is what is looked for
            if not corpus.known(error):
                where = corpus.save(data)
                result.failures.append(f"{self.name}: {signature(error)} (seed {seed}, {where})")
            return
        taken = time.perf_counter() - begun
        result.slowest = max(result.slowest, taken)
        if taken > SLOWEST:
            result.failures.append(
                f"{self.name}: {taken:.1f} s for {len(data)} bytes (seed {seed}, {corpus.save(data)})"
            )
        elif not corpus.known(outcome):
            corpus.keep(data)


def _memory() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def as_json(chance: Chance, value: Any) -> bytes:
    """Changed, and written as JSON: sometimes not JSON any more, sometimes with a key twice."""
    way = chance.random()
    if way < 0.04:
        return chance.deep(*chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b""))))
    text = io.StringIO()
    _write(text, chance.changed(value), chance)
    data = text.getvalue().encode(errors="surrogatepass")
    if way < 0.08:
        inside = chance.deep(b"[", b"]")
        at = data.rfind(b":")
        data = data[: at + 1] + inside + b"}" * data.count(b"{")
    return chance.bytes_changed(data) if chance.random() < 0.2 else data


def _write(text: io.StringIO, value: Any, chance: Chance) -> None:
    if isinstance(value, dict):
        pairs = list(value.items())
        if pairs and chance.random() < 0.1:
            pairs.append((chance.choice(pairs)[0], chance.value()))
        text.write("{")
        for number, (key, inner) in enumerate(pairs):
            text.write(f"{',' if number else ''}{json.dumps(str(key))}: ")
            _write(text, inner, chance)
        text.write("}")
    elif isinstance(value, list):
        text.write("[")
        for number, inner in enumerate(value):
            text.write("," if number else "")
            _write(text, inner, chance)
        text.write("]")
    elif isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.05:
        text.write(chance.choice((f"{value}e400", "9" * 5000, f"{value}.0", f"-{value}")))
    else:
        text.write(json.dumps(value.decode("latin-1") if isinstance(value, bytes) else value))


def as_yaml(chance: Chance, text: str, value: Any) -> bytes:
    """Changed as YAML: its values, or its lines."""
    way = chance.random()
    if way < 0.5:
        return as_json(chance, value)
    if way < 0.55:
        return chance.deep(b"- ", most=chance.choice((1000, 60_000)))
    if way < 0.6:
        depth = chance.randint(3, 30)
        lines = ["a0: &a0 [x, x]"] + [
            f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, depth)
        ]
        return (text + "\n" + "\n".join(lines) + "\n").encode()
    lines = text.splitlines()
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                lines.insert(at, lines[chance.randrange(len(lines))])
            case 1 if len(lines) > 1:
                del lines[at]
            case 2:
                lines[at] = " " * chance.randint(1, 3) + lines[at]
            case 3:
                lines[at] = lines[at].lstrip()
            case 4:
                head, colon, _ = lines[at].partition(":")
                lines[at] = f"{head}{colon} {chance.choice(_YAML)}"
            case 5:
                lines[at] = lines[at].replace(
                    ":", chance.choice((":", "", " :", ": &a", ": *a", ": !!binary", ": |", ": >-"))
                )
            case 6:
                lines[at] += chance.choice((" #", ": x", " {", "]", "'", '"', "\t", " *b", "\u2028"))
            case _:
                lines[at] = chance.choice(_YAML)
    data = "\n".join(lines).encode(errors="surrogatepass")
    return chance.bytes_changed(data) if chance.random() < 0.15 else data


_YAML: Final = (
    "~", "yes", "0o17", "1_000", "1:30", "2026-01-01", ".inf", ".nan", "9" * 400, "!!python/object/apply:os.system [x]", "*a",
    "&a [*a]", "{<<: *a}", "? [a]", "--- ", "%YAML 9.9", "[" * 70, "{" * 70, "|", "- - - -", "'", "{index}", "{a.b.c}", "-1", "1e400",
    "!!binary x", "!!set {a}", "''", "[]", "{}", "\u202e", "0x7fffffffffffffffff",
)  # fmt: skip
