"""A file of the user as a syntax tree that keeps every character."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

import libcst as cst
from libcst.metadata import (
    CodeRange,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from gradscope.recording.finding import Edit
from gradscope.source_edits.text_edits import edits_between

Item = TypeVar("Item")
Node = TypeVar("Node", bound=cst.CSTNode)

Replacement = (
    cst.CSTNode
    | cst.RemovalSentinel
    | cst.FlattenSentinel[cst.BaseSmallStatement]
    | cst.FlattenSentinel[cst.SimpleStatementLine]
    | cst.FlattenSentinel[cst.BaseStatement]
)
Changes = Mapping[cst.CSTNode, Replacement]
"""New nodes by the node of the tree that each replaces."""


class SourceFile:
    """A parsed file.

    Raises:
        ValueError: It is no Python code that this version of libcst reads without loss.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        try:
            module = cst.parse_module(text)
        except (cst.ParserSyntaxError, RecursionError) as error:
            raise ValueError(f"{path} cannot be parsed") from error
        if module.code != text:
            raise ValueError(f"{path} cannot be parsed without loss")
        # The tree is new, so that no node occurs in it twice; a copy of a long file takes time.
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = self._wrapper.module

    @cached_property
    def _positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        return self._wrapper.resolve(PositionProvider)

    @cached_property
    def _parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        return self._wrapper.resolve(ParentNodeProvider)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the node that holds another one."""
        return self._parents[node]

    def around(self, node: cst.CSTNode, *kinds: type[Node]) -> Node | None:
        """Return the innermost node of some kinds around another one; None if there is none."""
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, kinds):
                return node
        return None

    def statement_of(self, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
        """Return the statement that holds an expression; None in the header of a block."""
        while node in self._parents and not isinstance(node, cst.BaseSmallStatement):
            node = self._parents[node]
        return node if isinstance(node, cst.BaseSmallStatement) else None

    def lines(self, node: cst.CSTNode) -> range:
        """Return the numbers of the lines of a node."""
        position = self._positions[node]
        return range(position.start.line, position.end.line + 1)

    def start(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return line and column at which a node begins."""
        position = self._positions[node].start
        return position.line, position.column

    def end(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return line and column behind a node."""
        position = self._positions[node].end
        return position.line, position.column

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node."""
        return self.module.code_for_node(node)

    def qualified(self, node: cst.CSTNode) -> str:
        """Return what an imported name stands for, as `torch.nn.functional.softmax`.

        Empty for a name that is not imported, or may be bound to several things.
        """
        # Providers may give a function that finds the names when they are asked for.
        found = self._wrapper.resolve(QualifiedNameProvider).get(node, ())
        names = {one.name for one in (found() if callable(found) else found)}
        imported = all(
            one.source is QualifiedNameSource.IMPORT
            for one in (found() if callable(found) else found)
        )
        return names.pop() if len(names) == 1 and imported else ""

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """Return the scope of a node; None if it has none, as a keyword."""
        return self._wrapper.resolve(ScopeProvider).get(node)

    def statements(self, line: int) -> list[cst.CSTNode]:
        """Return the statements that a line is in, without those around them."""
        simple = [
            node
            for node in self._positions
            if isinstance(node, cst.BaseSmallStatement) and line in self.lines(node)
        ]
        compound = [
            node
            for node in self._positions
            if isinstance(node, cst.BaseCompoundStatement) and line in self.lines(node)
        ]
        headers = [node for node in compound if self.start(node)[0] == line]
        if not simple and not headers:
            # The line continues the header of a block, as a condition of several lines does.
            headers = sorted(compound, key=lambda node: len(self.lines(node)))[:1]
        return [*simple, *headers]

    def on_line(self, line: int, *kinds: type[Node]) -> list[Node]:
        """Return the nodes of some kinds in the statements of a line, in order of position.

        If several are in the statement and some begin on the line, only those.
        """
        found = [
            node
            for statement in self.statements(line)
            for node in self.inside(
                statement, *kinds, own=isinstance(statement, cst.BaseCompoundStatement)
            )
        ]
        found.sort(key=self.start)
        here = [node for node in found if self._is_on(node, line)]
        return here or found

    def _is_on(self, node: cst.CSTNode, line: int) -> bool:
        """Return whether Python gives a node this line: that of its start, or of its method."""
        if self.start(node)[0] == line:
            return True
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            return self.start(node.func.attr)[0] == line
        return False

    def inside(self, outer: cst.CSTNode, *kinds: type[Node], own: bool = False) -> Iterator[Node]:
        """Yield the nodes of some kinds in another one, itself included.

        Args:
            outer: The node.
            kinds: The kinds.
            own: Whether to leave out the body of a compound statement.
        """
        waiting = [outer]
        while waiting:
            node = waiting.pop()
            if isinstance(node, kinds):
                yield node
            if not (own and isinstance(node, cst.BaseSuite)):
                # The last of the list is taken first: reversed, nodes come in the order of the
                # text.
                waiting += reversed(node.children)

    def all(self, *kinds: type[Node]) -> Iterator[Node]:
        """Yield all nodes of some kinds."""
        return self.inside(self.module, *kinds)

    def inserted_before(
        self, statement: cst.BaseSmallStatement, new: cst.BaseSmallStatement
    ) -> Changes:
        """Return the change that inserts a statement before another one, on a line of its own."""
        return self._inserted(statement, [new, statement])

    def inserted_after(
        self, statement: cst.BaseSmallStatement, new: cst.BaseSmallStatement
    ) -> Changes:
        """Return the change that inserts a statement behind another one, on a line of its own."""
        return self._inserted(statement, [statement, new])

    def _inserted(
        self, statement: cst.BaseSmallStatement, both: list[cst.BaseSmallStatement]
    ) -> Changes:
        """Return the change to two statements; a line with more statements stays one line."""
        line = self.parent(statement)
        if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
            is_first = both[0] is statement
            added = cst.SimpleStatementLine(body=[both[1] if is_first else both[0]])
            if is_first:
                return {line: cst.FlattenSentinel([line, added])}
            # Comments and blank lines stay above both.
            own = line.with_changes(leading_lines=[])
            return {
                line: cst.FlattenSentinel(
                    [added.with_changes(leading_lines=line.leading_lines), own]
                )
            }
        semicolon = cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))
        # A semicolon that ends the line stays at its end.
        has_end = isinstance(statement.semicolon, cst.Semicolon)
        first = both[0].with_changes(semicolon=semicolon)
        second = both[1].with_changes(
            semicolon=statement.semicolon if has_end else cst.MaybeSentinel.DEFAULT
        )
        return {statement: cst.FlattenSentinel([first, second])}

    def edits(self, changes: Changes) -> tuple[Edit, ...]:
        """Return the edits that replace nodes; none if the result is no valid code."""
        after = self.module.visit(_Replacing(changes))
        assert isinstance(after, cst.Module)
        text = after.code
        try:
            # libcst also builds trees that are no valid code, such as an empty block.
            ast.parse(text)
        except (SyntaxError, ValueError):
            return ()
        return edits_between(self.path, self.text, text)


class _Replacing(cst.CSTTransformer):
    """Replaces nodes of a tree."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self._changes = changes

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> Replacement:
        """Return the replacement of a node, or the node itself."""
        new = self._changes.get(original_node, updated_node)
        # Edits may make both values of a choice equal.
        if isinstance(new, cst.IfExp) and isinstance(original_node, cst.IfExp):
            is_choice = not original_node.body.deep_equals(original_node.orelse)
            return _without_choice(new) if is_choice else new
        return new


def _without_choice(node: cst.IfExp) -> cst.BaseExpression:
    """Return `x` for `x if condition else x`, unless the condition may do something."""
    if not node.body.deep_equals(node.orelse) or _may_act(node.test):
        return node
    return node.body.with_changes(lpar=node.lpar, rpar=node.rpar) if node.lpar else node.body


def _may_act(node: cst.CSTNode) -> bool:
    acts = isinstance(node, cst.Await | cst.Call | cst.NamedExpr | cst.Yield)
    return acts or any(map(_may_act, node.children))


_ATOMS = (
    cst.Attribute,
    cst.BaseNumber,
    cst.Call,
    cst.Dict,
    cst.DictComp,
    cst.List,
    cst.ListComp,
    cst.Name,
    cst.Set,
    cst.SetComp,
    cst.Subscript,
)
_OPEN = (
    cst.AnnAssign,
    cst.Arg,
    cst.Assign,
    cst.Element,
    cst.Expr,
    cst.Return,
)
"""Nodes in which an expression needs no parentheses."""
_BRACKETED = (cst.Arg, cst.Element)
"""Nodes in which it needs none on several lines."""


def operand(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that can be followed by a dot, in parentheses if it needs them."""
    # A dot behind a number is part of the number: `2.mean()` is no code.
    if node.lpar or (isinstance(node, _ATOMS) and not isinstance(node, cst.BaseNumber)):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def in_place_of(
    source: SourceFile, old: cst.BaseExpression, new: cst.BaseExpression
) -> cst.BaseExpression:
    """Return an expression that can stand where another one does."""
    if old.lpar and not new.lpar:
        return new.with_changes(lpar=old.lpar, rpar=old.rpar)
    outer = source.parent(old)
    is_one_line = "\n" not in source.code(new)
    is_open = isinstance(outer, _OPEN) and (is_one_line or isinstance(outer, _BRACKETED))
    return new if is_open else operand(new)


def method_call(owner: cst.BaseExpression, name: str, *arguments: str) -> cst.Call:
    """Return the call of a method with arguments given as code."""
    return cst.Call(
        func=cst.Attribute(value=operand(owner), attr=cst.Name(name)),
        args=[cst.Arg(cst.parse_expression(text)) for text in arguments],
    )


def only(candidates: Iterable[Item]) -> Item | None:
    """Return the only one of several; None if there are none or more."""
    found = list(candidates)
    return found[0] if len(found) == 1 else None
