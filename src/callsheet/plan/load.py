"""Reads experiments from files, folders and standard input, and reports all their mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from callsheet.errors import InvalidExperiment, Problem, UserError
from callsheet.plan.check import DocumentInfo, check, check_experiment
from callsheet.spec import yaml_tree as tree
from callsheet.spec.document import ParsedExperiment, is_experiment, parse_experiment
from callsheet.spec.dump import dump, to_data, to_yaml
from callsheet.spec.experiment import Experiment
from callsheet.spec.overrides import Override, apply, parse_override
from callsheet.spec.yaml_reader import MAX_BYTES, Document, Unreadable, decode, read

STDIN = "<stdin>"
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Loaded:
    """An experiment without mistakes and where it came from."""

    experiment: Experiment
    base: Path
    """The folder that relative paths start from."""
    file: str
    text: str
    """The document as YAML, with changes from the command line: it is stored with the run."""
    root: tree.Node = field(repr=False, compare=False)

    def placed(self, problem: Problem) -> Problem:
        """A problem that was found later, with its position in the file."""
        line, column, origin = tree.place(self.root, tree.locate(self.root, problem.path))
        return (
            problem if problem.file else replace(problem, file=origin or self.file, line=line, column=column)
        )

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Add positions to the problems that are raised inside."""
        try:
            yield
        except InvalidExperiment as error:
            raise InvalidExperiment([self.placed(problem) for problem in error.problems]) from None


@dataclass(frozen=True, slots=True)
class _InputFile:
    file: str
    base: Path
    data: bytes
    in_folder: bool = False
    """Whether there may be files that are no experiments."""


def load(paths: Sequence[str], *, sets: Sequence[str] = (), stdin: TextIO | None = None) -> list[Loaded]:
    """The experiments of files, folders and, for ``-``, standard input, in their order.

    Raises `InvalidExperiment` with all mistakes, or `UserError` if there is nothing to read.
    """
    overrides = [parse_override(text) for text in sets]
    problems: list[Problem] = []
    documents: list[tuple[_InputFile, Document]] = []
    for source in [source for path in paths for source in _sources(path, stdin)]:
        in_file, unreadable = _read(source)
        problems += unreadable
        documents += [(source, document) for document in in_file]
    if not documents and not problems:
        raise UserError(
            f"there is no experiment in {', '.join(paths) or 'nothing'}",
            fix="pass a file that contains a document with kind: Experiment",
        )
    problems += _override([document for _, document in documents], overrides)
    everything = [(source, document, examine(document, source.file)) for source, document in documents]
    problems += [problem for _, _, parsed in everything for problem in parsed.problems]
    problems += _same_names([parsed for _, _, parsed in everything])
    loaded = []
    for source, document, parsed in everything:
        if parsed.experiment:
            text = dump(tree.to_data(document.root)) if overrides else document.text
            loaded.append(Loaded(parsed.experiment, source.base, source.file, text, parsed.root))
    if problems:
        raise InvalidExperiment(list(dict.fromkeys(problems)))
    return loaded


def loaded_from_model(experiment: Experiment) -> Loaded:
    """An experiment made in Python, for those who take loaded ones; its paths are relative to the current folder."""
    if problems := check_experiment(experiment):
        raise InvalidExperiment(problems)
    return Loaded(experiment, Path.cwd(), "", to_yaml(experiment), tree.from_data(to_data(experiment)))


def examine(document: Document, file: str) -> ParsedExperiment:
    """An experiment with all mistakes, none reported twice."""
    parsed = parse_experiment(document, file)
    if parsed.experiment:
        document_info = DocumentInfo(parsed.names, frozenset(tree.dropped(parsed.root)))
        mistakes = check(parsed.experiment, document_info)
        parsed.problems += [parsed.problem(m.loc, m.message, m.fix, key=m.at_key) for m in mistakes]
    unique: dict[tuple[str, int, int, str], Problem] = {}
    for problem in parsed.problems:
        # What an alias repeats is one mistake; without a position, the path tells two apart.
        where = "" if problem.line else problem.path
        unique.setdefault((problem.file + where, problem.line, problem.column, problem.message), problem)
    parsed.problems = list(unique.values())
    return parsed


def _read(source: _InputFile) -> tuple[list[Document], list[Problem]]:
    try:
        documents, problems = read(decode(source.data))
    except Unreadable as error:
        documents, problems = [], [error.problem]
    if source.in_folder:
        documents = [document for document in documents if is_experiment(document.root)]
    return documents, [replace(problem, file=source.file) for problem in problems]


def _override(documents: list[Document], overrides: list[Override]) -> list[Problem]:
    """Change every document that has the path; a path that none has is a mistake."""
    problems = []
    if overrides:
        for document in documents:
            # A copy separates what an alias shares: one flag changes one place.
            document.root = tree.copy(document.root)
    for override in overrides:
        results = [apply(document.root, override) for document in documents]
        if results and all(results):
            problems += [result for result in results[:1] if result]
    return problems


def _same_names(everything: list[ParsedExperiment]) -> Iterator[Problem]:
    first: dict[str, ParsedExperiment] = {}
    for parsed in everything:
        name = tree.find(parsed.root, ("metadata", "name"))
        if not isinstance(name, tree.ScalarNode) or name.invented:
            continue
        other = first.setdefault(name.text, parsed)
        if other is not parsed:
            where = "the same file" if other.file == parsed.file else other.file
            message = f"there is another experiment {name.text!r} in {where}"
            yield parsed.problem(("metadata", "name"), message, "rename one of them")


def _sources(path: str, stdin: TextIO | None) -> list[_InputFile]:
    if path == "-":
        if stdin is None:
            raise UserError("there is no standard input to read", fix="pass a file")
        binary = getattr(stdin, "buffer", None)
        data = binary.read(MAX_BYTES + 1) if binary else stdin.read(MAX_BYTES + 1).encode()
        return [_InputFile(STDIN, Path.cwd(), data)]
    place = Path(path)
    try:
        if not place.is_dir():
            return [_file(place, path)]
        inside = sorted(p for p in place.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        if not inside:
            raise UserError(
                f"the folder {path} contains no .yaml or .yml file", fix="pass a file, or another folder"
            )
        return [_file(p, str(p), in_folder=True) for p in inside]
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", fix=_nearby(place)) from None
    except PermissionError as error:
        raise UserError(
            f"no permission to read {error.filename or path}", fix="check its permissions"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", fix="pass another file") from None


def _file(place: Path, shown: str, *, in_folder: bool = False) -> _InputFile:
    with place.open("rb") as stream:
        return _InputFile(shown, place.absolute().parent, stream.read(MAX_BYTES + 1), in_folder)


def _nearby(place: Path) -> str:
    """The experiment files in the same folder."""
    folder = place.parent
    names = sorted(p.name for p in folder.iterdir() if p.suffix in _SUFFIXES) if folder.is_dir() else []
    return (
        f"use one of: {', '.join(names[:5])}"
        if names
        else "check the path, or create a first experiment with callsheet init"
    )
