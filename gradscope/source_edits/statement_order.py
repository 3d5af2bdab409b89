"""Moves statements within a block, and inserts calls beside them."""

from collections.abc import Iterable, Iterator

import libcst as cst

from gradscope.source_edits.source_file import Changes, SourceFile, only

_BLOCKS: tuple[type[cst.CSTNode], ...] = (
    cst.For,
    cst.FunctionDef,
    cst.If,
    cst.Try,
    cst.While,
    cst.With,
)


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


def moved_into(
    source: SourceFile, statement: cst.SimpleStatementLine, other: cst.SimpleStatementLine
) -> Changes:
    """Return the change that moves a statement before another one, of any block of a function.

    Empty if the statement reads or assigns what is bound in a loop around it alone.
    """
    if source.around(statement, cst.FunctionDef) is not source.around(other, cst.FunctionDef):
        return {}
    kept = set(_blocks(source, other))
    left = [block for block in _blocks(source, statement) if block not in kept]
    bound: set[str] = set()
    for block in left:
        bound |= _bound_names(source, block, but=statement)
    if any(name.value in bound for name in source.inside(statement, cst.Name)):
        return {}
    if _is_read_by_others(source, statement, left):
        return {}
    own = _without_blank_lines(statement)
    first = own.with_changes(leading_lines=[*_blank_lines(other), *own.leading_lines])
    both = [first, other.with_changes(leading_lines=_comments(other))]
    return {statement: cst.RemovalSentinel.REMOVE, other: cst.FlattenSentinel(both)}


def _is_read_by_others(
    source: SourceFile, statement: cst.SimpleStatementLine, blocks: Iterable[cst.CSTNode]
) -> bool:
    """Return whether blocks read elsewhere what a statement assigns."""
    own, bound = set(source.inside(statement, cst.Name)), _assigned(source, statement)
    return any(
        name.value in bound and name not in own
        for block in blocks
        for name in source.inside(block, cst.Name)
    )


def _assigned(source: SourceFile, statement: cst.CSTNode) -> set[str]:
    """Return the names that a statement assigns."""
    targets = [one.target for one in source.inside(statement, cst.AssignTarget)]
    return {name.value for target in targets for name in source.inside(target, cst.Name)}


def _blocks(source: SourceFile, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the blocks around a node, the innermost first."""
    outer = source.around(node, *_BLOCKS)
    while outer is not None:
        yield outer
        outer = source.around(outer, *_BLOCKS)


def _bound_names(source: SourceFile, block: cst.CSTNode, *, but: cst.CSTNode) -> set[str]:
    targets: list[cst.CSTNode] = [one.target for one in source.inside(block, cst.For)]
    targets += [one.target for one in source.inside(block, cst.AssignTarget)]
    targets += [one.target for one in source.inside(block, cst.AnnAssign)]
    targets += [one.target for one in source.inside(block, cst.AugAssign)]
    targets += [one.asname for one in source.inside(block, cst.WithItem) if one.asname]
    own = set(source.inside(but, cst.Name))
    names = (name for target in targets for name in source.inside(target, cst.Name))
    return {name.value for name in names if name not in own}


def line_before(block: cst.BaseCompoundStatement, code: str) -> Changes:
    """Return the change that inserts a line before a compound statement."""
    blank = [line for line in block.leading_lines if line.comment is None]
    comments = [line for line in block.leading_lines if line.comment is not None]
    added = line_of(code).with_changes(leading_lines=blank)
    return {block: cst.FlattenSentinel([added, block.with_changes(leading_lines=comments)])}


def line_at_start(
    source: SourceFile, block: cst.For | cst.While | cst.FunctionDef, code: str
) -> Changes:
    """Return the change that inserts a line at the start of a block, behind a docstring."""
    body = block.body
    if isinstance(body, cst.SimpleStatementSuite):
        return source.inserted_before(body.body[0], line_of(code).body[0])
    first = body.body[0]
    if isinstance(block, cst.FunctionDef) and block.get_docstring() is not None:
        if len(body.body) == 1:
            return {}
        first = body.body[1]
    if not isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement):
        return {}
    both: list[cst.BaseStatement] = [line_of(code), first]
    return {first: cst.FlattenSentinel(both)}


def line_of(code: str) -> cst.SimpleStatementLine:
    """Return the line of a statement given as code."""
    line = cst.parse_statement(code)
    assert isinstance(line, cst.SimpleStatementLine)
    return line


def _can_move(
    source: SourceFile, statement: cst.SimpleStatementLine, other: cst.SimpleStatementLine
) -> bool:
    """Return whether two statements are in one block, and none between needs the first one.

    What a statement assigns may be read by those between, if it moves down.
    """
    if statement is other or source.parent(statement) is not source.parent(other):
        return False
    if source.start(other) < source.start(statement) or isinstance(statement.body[0], cst.Expr):
        return True
    bound = _assigned(source, statement)
    block = source.parent(statement)
    between = (
        name
        for name in source.inside(block, cst.Name)
        if source.end(statement) < source.start(name) < source.end(other)
    )
    return not any(name.value in bound for name in between)


def _without_blank_lines(statement: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    return statement.with_changes(leading_lines=_comments(statement))


def _comments(statement: cst.SimpleStatementLine) -> list[cst.EmptyLine]:
    return [line for line in statement.leading_lines if line.comment is not None]


def _blank_lines(statement: cst.SimpleStatementLine) -> list[cst.EmptyLine]:
    return [line for line in statement.leading_lines if line.comment is None]
