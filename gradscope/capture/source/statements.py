"""Reads, parses and searches the source code around lines."""

import ast
import functools
import linecache
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType

from gradscope.recording.evidence.code import SourceRecord, StatementRecord
from gradscope.recording.records import Site


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a source, None if it cannot be parsed, like some notebook cells."""
    try:
        with _unwarned():
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def compiled(source: str, file: str) -> CodeType | None:
    """Return the code of a source, None if it cannot be compiled."""
    try:
        with _unwarned():
            return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None


@contextmanager
def _unwarned() -> Iterator[None]:
    """Suppress warnings: Python showed them when it compiled the source.

    `warnings.catch_warnings` would make Python forget which warnings of the script it has shown.
    """
    shown = warnings._showwarnmsg  # type: ignore[attr-defined]
    warnings._showwarnmsg = lambda message: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings._showwarnmsg = shown  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=16)
def tree_of(file: str) -> ast.Module:
    """Return the tree of a file, empty if it cannot be read."""
    return parsed("".join(linecache.getlines(file))) or ast.Module(body=[], type_ignores=[])


@functools.lru_cache(maxsize=64)
def code_at(file: str, line: int) -> CodeType | None:
    """Return the innermost code object of a line, compiled from the unchanged source."""
    code = compiled("".join(linecache.getlines(file)), file)
    if code is None:
        return None
    waiting, found = [code], None
    while waiting:
        one = waiting.pop()
        if any(number == line for *_, number in one.co_lines()):
            found = one
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return found


CONTEXT = 2
"""Number of lines kept before and after each line."""


def sources_around(sites: Iterable[Site]) -> Iterator[SourceRecord]:
    """Yield the lines around the sites, in windows that do not touch; none for unreadable files."""
    by_file: dict[str, set[int]] = {}
    for site in sites:
        window = range(site.line - CONTEXT, site.line + CONTEXT + 1)
        by_file.setdefault(site.file, set()).update(window)
    for file, numbers in by_file.items():
        lines = linecache.getlines(file)
        known = sorted(number for number in numbers if 1 <= number <= len(lines))
        for first, last in _runs(known):
            texts = tuple(line.rstrip() for line in lines[first - 1 : last])
            yield SourceRecord(file=file, first=first, lines=texts)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive numbers; the numbers are ascending."""
    present = set(numbers)
    starts = (number for number in numbers if number - 1 not in present)
    ends = (number for number in numbers if number + 1 not in present)
    return zip(starts, ends, strict=True)


_LONGEST = 1_000
"""Maximum length in characters. Longer ones are lists and calls with independent lines."""


def statements_around(sites: Iterable[Site]) -> Iterator[StatementRecord]:
    """Yield each statement of several lines that contains a site of the user's own code."""
    by_file: dict[str, set[int]] = {}
    for site in sites:
        if not site.is_installed:
            by_file.setdefault(site.file, set()).add(site.line)
    for file, numbers in by_file.items():
        lines = linecache.getlines(file)
        for first, last in sorted(_extents("".join(lines))):
            text = "".join(lines[first - 1 : last])
            if len(text) <= _LONGEST and any(first <= number <= last for number in numbers):
                yield StatementRecord(file=file, first=first, last=last, text=text)


@functools.lru_cache(maxsize=16)  # tests inspect many models in one file
def _extents(source: str) -> frozenset[tuple[int, int]]:
    """Return first and last line of every statement that spans several lines."""
    tree = parsed(source)
    if tree is None:
        return frozenset()  # for example, a notebook's cell with magics
    extents = {(one.lineno, _last_line(one)) for one in _statements(tree)}
    return frozenset((first, last) for first, last in extents if last > first)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield all statements, without a walk through their expressions, which are many more."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, ())
            if isinstance(below, list):  # `body` and `orelse` of expressions are no statements
                waiting += below


def _last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement, or of the header of a compound statement."""
    if isinstance(statement, ast.Match):
        return statement.lineno
    body: list[ast.stmt] = getattr(statement, "body", [])
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno
