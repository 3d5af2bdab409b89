"""Finds the statements around lines."""

import ast
import functools
import linecache
from collections.abc import Iterable, Iterator

from gradscope.capture.parsing import parsed
from gradscope.recording.evidence.code import StatementRecord
from gradscope.recording.records import Site

_LONGEST = 1_000
"""Characters; longer ones are lists and calls of which every line is a matter of its own."""


def statements_around(sites: Iterable[Site]) -> Iterator[StatementRecord]:
    """Yield each statement of several lines that holds a site of the user's own code."""
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


@functools.lru_cache(maxsize=16)  # tests inspect many models of one file
def _extents(source: str) -> frozenset[tuple[int, int]]:
    """Return first and last line of every statement that stands on several."""
    tree = parsed(source)
    if tree is None:
        return frozenset()  # a notebook's cell with magics, say
    extents = {(one.lineno, _last_line(one)) for one in _statements(tree)}
    return frozenset((first, last) for first, last in extents if last > first)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield all statements, without a look at the expressions in them, which are many more."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, ())
            if isinstance(below, list):  # `body` and `orelse` of expressions are none
                waiting += below


def _last_line(statement: ast.stmt) -> int:
    """Return the line on which a statement ends, or on which what is before its block ends."""
    if isinstance(statement, ast.Match):
        return statement.lineno
    body: list[ast.stmt] = getattr(statement, "body", [])
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno
