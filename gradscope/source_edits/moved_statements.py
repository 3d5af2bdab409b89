"""Moves statements, with the condition that only they depend on."""

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.source_edits.source_file import Changes, Replacement, SourceFile
from gradscope.source_edits.variables import names_in

_BLOCKS: tuple[type[cst.CSTNode], ...] = (
    cst.For,
    cst.FunctionDef,
    cst.If,
    cst.Try,
    cst.While,
    cst.With,
)
_Line = cst.SimpleStatementLine | cst.BaseCompoundStatement
_Small = cst.BaseSmallStatement


def moved_before(
    source: SourceFile, statement: _Small, other: _Small, *, changes_other: bool = False
) -> Changes:
    """Return the change that moves a statement up, before another one; empty if it cannot be moved.

    Args:
        source: The file.
        statement: What is moved.
        other: The other statement, which may be in a block beside the first one.
        changes_other: Whether it is the purpose that one of them reads what the other one assigns.
    """
    return _moved(source, statement, other, is_behind=False, changes_other=changes_other)


def moved_after(
    source: SourceFile, statement: _Small, other: _Small, *, changes_other: bool = False
) -> Changes:
    """Return the change that moves a statement down, behind another one; see `moved_before`."""
    return _moved(source, statement, other, is_behind=True, changes_other=changes_other)


def _moved(
    source: SourceFile, statement: _Small, other: _Small, *, is_behind: bool, changes_other: bool
) -> Changes:
    is_down = source.start(statement) < source.start(other)
    if statement is other or is_down != is_behind:
        return {}
    line = source.parent(statement)
    assert isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite)
    own = set(source.inside(other, cst.Name)) if changes_other else set()
    if line is source.parent(other):
        body = _reordered(line.body, statement, other, is_behind=is_behind)
        between = _between(source, line, statement, other) - own
        return {line: line.with_changes(body=body)} if _is_free(source, statement, between) else {}
    move = _move_of(source, statement, other)
    if move is None:
        return {}
    between = _between(source, move.block, *move.ends) - own
    return move.changes(is_behind=is_behind) if _is_free(source, move.unit, between) else {}


def _reordered(
    body: Sequence[_Small], statement: _Small, other: _Small, *, is_behind: bool
) -> list[_Small]:
    """Return the statements of a line in a new order, with their semicolons."""
    left = [one for one in body if one is not statement]
    at = next(number for number, one in enumerate(left) if one is other) + is_behind
    return _joined([*left[:at], statement, *left[at:]])


def _joined(body: Sequence[_Small]) -> list[_Small]:
    # libcst then writes the semicolons that the new order needs.
    return [one.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for one in body]


@dataclass(frozen=True, slots=True)
class _Move:
    """A statement and the line of the same block that it is moved beside."""

    statement: _Small
    unit: _Line | _Small
    """What is moved: the statement, its line, or the condition around it."""
    line: _Line
    """The line of the unit in the block."""
    other: _Small
    anchor: _Line
    """The line of the other statement, or the block around it."""
    block: cst.CSTNode

    @property
    def ends(self) -> tuple[cst.CSTNode, cst.CSTNode]:
        """The unit and the anchor, between which nothing may need or change the unit."""
        return self.unit, self.anchor

    def changes(self, *, is_behind: bool) -> Changes:
        """Return the changes of both lines."""
        if isinstance(self.anchor, cst.SimpleStatementLine) and self._is_inside(is_behind):
            return self._into_line(self.anchor, is_behind=is_behind)
        moved = self._as_line()
        if is_behind:
            both = [self.anchor, moved]
        else:
            # Blank lines stay above the first of both, comments with their own line.
            blank = _blank_lines(self.anchor)
            moved = moved.with_changes(leading_lines=[*blank, *moved.leading_lines])
            both = [moved, self.anchor.with_changes(leading_lines=_comments(self.anchor))]
        return {**self._removed(), self.anchor: cst.FlattenSentinel(both)}

    def _is_inside(self, is_behind: bool) -> bool:
        """Return whether the new position is within the anchor's line."""
        assert isinstance(self.anchor, cst.SimpleStatementLine)
        return self.anchor.body[-1 if is_behind else 0] is not self.other

    def _into_line(self, anchor: cst.SimpleStatementLine, *, is_behind: bool) -> Changes:
        has_comment = isinstance(self.unit, cst.SimpleStatementLine) and (
            self.unit.trailing_whitespace.comment is not None or _comments(self.unit)
        )
        if isinstance(self.unit, cst.BaseCompoundStatement) or has_comment:
            return {}
        at = next(number for number, one in enumerate(anchor.body) if one is self.other)
        at += is_behind
        body = _joined([*anchor.body[:at], self.statement, *anchor.body[at:]])
        return {**self._removed(), anchor: anchor.with_changes(body=body)}

    def _as_line(self) -> _Line:
        if isinstance(self.unit, _Small):
            return cst.SimpleStatementLine(body=_joined([self.unit]))
        return self.unit.with_changes(leading_lines=_comments(self.unit))

    def _removed(self) -> dict[cst.CSTNode, Replacement]:
        if self.unit is not self.line:
            assert isinstance(self.line, cst.SimpleStatementLine)
            left = _joined([one for one in self.line.body if one is not self.unit])
            return {self.line: self.line.with_changes(body=left)}
        removed: dict[cst.CSTNode, Replacement] = {self.line: cst.RemovalSentinel.REMOVE}
        # The first line of a block has no blank lines above it.
        before, first = _lines_of(self.block)[:2]
        if before is self.line and first is not self.anchor and isinstance(first, _Line):
            removed[first] = first.with_changes(leading_lines=_comments(first))
        return removed


def _move_of(source: SourceFile, statement: _Small, other: _Small) -> _Move | None:
    """Return how to move a statement; None if it is not in a block around the other one."""
    # The outermost of them moves along.
    for holder in reversed([*_enclosing(source, statement)]):
        found = _anchor(source, holder, other)
        if found is not None and not _is_branch(source, holder):
            return _Move(statement, holder, holder, other, found, source.parent(holder))
    line = source.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine):
        return None
    found = _anchor(source, line, other)
    if found is None:
        return None
    unit = line if len(line.body) == 1 else statement
    return _Move(statement, unit, line, other, found, source.parent(line))


def _enclosing(source: SourceFile, statement: _Small) -> Iterator[cst.If | cst.For]:
    """Yield the conditions and loops that hold a statement and nothing else, the innermost first.

    A loop is one that repeats the statement for each item, as `for p in parameters: clip(p)`.
    """
    line = source.parent(statement)
    assert isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite)
    is_only = len(line.body) == 1
    node: cst.CSTNode = line
    names = names_in(source, statement)
    while is_only and node is not source.module:
        outer = source.parent(node)
        if isinstance(outer, cst.IndentedBlock):
            is_only = len(outer.body) == 1
        elif isinstance(outer, cst.For):
            is_only = outer.orelse is None and names_in(source, outer.target) <= names
        elif isinstance(outer, cst.If):
            is_only = outer.orelse is None
        else:
            return
        if is_only and isinstance(outer, cst.If | cst.For):
            yield outer
        node = outer


def _is_branch(source: SourceFile, holder: cst.If | cst.For) -> bool:
    """Return whether a condition is the `elif` of another one."""
    # libcst holds an `elif` in the `orelse` of its `if`.
    return isinstance(source.parent(holder), cst.If)


def _anchor(source: SourceFile, line: _Line, other: cst.CSTNode) -> _Line | None:
    """Return the line of another statement, or the block around it, in the block of a line."""
    block, node = source.parent(line), other
    while node is not source.module:
        outer = source.parent(node)
        if outer is block:
            return node if isinstance(node, _Line) and node is not line else None
        if isinstance(outer, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            return None
        node = outer
    return None


def _lines_of(block: cst.CSTNode) -> Sequence[cst.BaseStatement]:
    return block.body if isinstance(block, cst.IndentedBlock | cst.Module) else ()


def _between(
    source: SourceFile, block: cst.CSTNode, one: cst.CSTNode, other: cst.CSTNode
) -> set[cst.Name]:
    """Return the names from one statement to another one, which is included."""
    first, last = sorted((one, other), key=source.start)
    moved = set(source.inside(one, cst.Name))
    return {
        name
        for name in source.inside(block, cst.Name)
        if source.start(first) <= source.start(name) < source.end(last) and name not in moved
    }


def _is_free(source: SourceFile, unit: cst.CSTNode, between: Iterable[cst.Name]) -> bool:
    """Return whether code reads nothing that a statement assigns, and assigns nothing it reads."""
    bound = _assigned(source, unit)
    read = names_in(source, unit)
    return not any(
        name.value in bound or (name.value in read and _is_target(source, name)) for name in between
    )


def _is_target(source: SourceFile, name: cst.Name) -> bool:
    """Return whether a name is assigned, alone or in a tuple."""
    inner: cst.CSTNode = name
    outer = source.parent(inner)
    while isinstance(outer, cst.Tuple | cst.List | cst.Element | cst.StarredElement):
        inner, outer = outer, source.parent(outer)
    if isinstance(outer, cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr):
        return outer.target is inner
    return isinstance(outer, cst.AsName | cst.AssignTarget)


def moved_into(source: SourceFile, statement: _Small, other: _Small) -> Changes:
    """Return the change that moves a statement before another one, of any block of a function.

    Empty if the statement shares its line, or if it reads or assigns what is bound in a loop around
    it alone.
    """
    line = source.parent(statement)
    is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    if source.around(statement, cst.FunctionDef) is not source.around(other, cst.FunctionDef):
        return {}
    kept = set(_blocks(source, other))
    left = [block for block in _blocks(source, statement) if block not in kept]
    own, bound = set(source.inside(statement, cst.Name)), set[str]()
    for block in left:
        bound |= {name.value for name in _bound_names(source, block) if name not in own}
    if not is_alone or any(name.value in bound for name in source.inside(statement, cst.Name)):
        return {}
    if _is_read_by_others(source, statement, left):
        return {}
    assert isinstance(line, cst.SimpleStatementLine)
    return {line: cst.RemovalSentinel.REMOVE, **_put_before(source, line, other)}


def _put_before(source: SourceFile, line: cst.SimpleStatementLine, other: _Small) -> Changes:
    """Return the change that puts a line before a statement; into its line if it has several."""
    there = source.parent(other)
    if not isinstance(there, cst.SimpleStatementLine) or len(there.body) > 1:
        return source.inserted_before(other, line.body[0])
    own = line.with_changes(leading_lines=[*_blank_lines(there), *_comments(line)])
    both = [own, there.with_changes(leading_lines=_comments(there))]
    return {there: cst.FlattenSentinel(both)}


def _is_read_by_others(
    source: SourceFile, statement: _Small, blocks: Iterable[cst.CSTNode]
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
    return {name.value for name in _bound_names(source, statement)}


def _blocks(source: SourceFile, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the blocks around a node, the innermost first."""
    outer = source.around(node, *_BLOCKS)
    while outer is not None:
        yield outer
        outer = source.around(outer, *_BLOCKS)


_BINDING: tuple[
    type[cst.AnnAssign | cst.AssignTarget | cst.AugAssign | cst.For | cst.NamedExpr], ...
] = (cst.AnnAssign, cst.AssignTarget, cst.AugAssign, cst.For, cst.NamedExpr)


def _bound_names(source: SourceFile, node: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names of the targets in a node, those of attributes among them."""
    targets: list[cst.CSTNode] = [one.target for one in source.inside(node, *_BINDING)]
    targets += [one.asname for one in source.inside(node, cst.WithItem) if one.asname]
    return (name for target in targets for name in source.inside(target, cst.Name))


def _comments(line: _Line) -> list[cst.EmptyLine]:
    return [one for one in line.leading_lines if one.comment is not None]


def _blank_lines(line: _Line) -> list[cst.EmptyLine]:
    return [one for one in line.leading_lines if one.comment is None]
