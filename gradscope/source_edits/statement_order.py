"""Moves statements within a block, and inserts calls beside them."""

from collections.abc import Iterable

import libcst as cst

from gradscope.source_edits.source_file import Changes, SourceFile, only


def statement_on(source: SourceFile, line: int) -> cst.SimpleStatementLine | None:
    """Return the statement of a line; None if there are several, or it shares its line."""
    statement = only(source.statements(line))
    parent = None if statement is None else source.parent(statement)
    is_alone = isinstance(parent, cst.SimpleStatementLine) and len(parent.body) == 1
    return parent if is_alone and isinstance(parent, cst.SimpleStatementLine) else None


def call_named(source: SourceFile, statement: cst.CSTNode, names: Iterable[str]) -> cst.Call | None:
    """Return the only call of a method of some names in a statement; None otherwise."""
    wanted = set(names)
    return only(
        call
        for call in source.inside(statement, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in wanted
    )


def moved_before(
    source: SourceFile, statement: cst.SimpleStatementLine, other: cst.SimpleStatementLine
) -> Changes:
    """Return the change that moves a statement before another one; empty if it cannot be moved."""
    if not _can_move(source, statement, other):
        return {}
    own, comments = _without_blank_lines(statement), _comments(other)
    first = own.with_changes(leading_lines=[*_blank_lines(other), *own.leading_lines])
    both = [first, other.with_changes(leading_lines=comments)]
    return {statement: cst.RemovalSentinel.REMOVE, other: cst.FlattenSentinel(both)}


def moved_after(
    source: SourceFile, statement: cst.SimpleStatementLine, other: cst.SimpleStatementLine
) -> Changes:
    """Return the change that moves a statement behind another one; empty if it cannot be moved."""
    if not _can_move(source, statement, other):
        return {}
    both = [other, _without_blank_lines(statement)]
    return {statement: cst.RemovalSentinel.REMOVE, other: cst.FlattenSentinel(both)}


def _can_move(
    source: SourceFile, statement: cst.SimpleStatementLine, other: cst.SimpleStatementLine
) -> bool:
    """Return whether two statements are in one block, and none between needs the first one.

    What a statement assigns may be read by those between, if it moves down.
    """
    if statement is other or source.parent(statement) is not source.parent(other):
        return False
    moves_up = source.start(other) < source.start(statement)
    return moves_up or isinstance(statement.body[0], cst.Expr)


def _without_blank_lines(statement: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    return statement.with_changes(leading_lines=_comments(statement))


def _comments(statement: cst.SimpleStatementLine) -> list[cst.EmptyLine]:
    return [line for line in statement.leading_lines if line.comment is not None]


def _blank_lines(statement: cst.SimpleStatementLine) -> list[cst.EmptyLine]:
    return [line for line in statement.leading_lines if line.comment is None]
