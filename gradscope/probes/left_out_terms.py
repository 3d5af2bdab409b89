"""Finds terms of a loss that a forward computes, and that the loss does not contain."""

import ast
import linecache
import re
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.source.lines import Line, created
from gradscope.capture.source.statements import parsed, tree_of
from gradscope.capture.step.graph import Edge
from gradscope.capture.training.locations import is_installed
from gradscope.probes.context import ProbeContext
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.forward import DropWay, LeftOutTermRecord

_TERM = re.compile(
    r"aux|balanc|commit|penal|regulari[sz]|sparsity|(^|_)reg(_|$)|_loss(es)?$|^loss_", re.IGNORECASE
)
"""Names of terms."""
_BLOCKS = ("body", "orelse", "finalbody")
_NEAR = 8
"""Number of operations before the loss in which its statement is searched for."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
_LOOKS = frozenset({"eval", "exec", "globals", "locals", "vars"})
"""Functions that may read any variable."""
_PLAIN = frozenset({"detach", "float", "item", "numpy", "tolist"})
"""Last calls of a value that has no gradient."""
_DIVERGENCE = re.compile(r"(^|_)kld?(_|$)", re.IGNORECASE)


def probe_left_out_terms(context: ProbeContext) -> str | None:
    """Record numbers with a gradient, named as terms of a loss, that backward has not reached."""
    if context.opaque:
        return "compiled code cannot be observed"
    found: dict[Node, tuple[str, int | None]] = {}
    with DisableTorchFunction():
        for name, line, node in _returned(context):
            found.setdefault(node, (name, context.assembler.site_of(line)))
        # A term that is returned and stored as well is one term.
        kept = [(name, node) for name, node in _kept(context) if node not in found]
    if kept:
        search = UserCodeSearch(context)
        for name, node in kept:
            found[node] = (f"self.{name}", next(iter(search.assignments(name)), None))
    for name, site in dict.fromkeys(found.values()):
        context.assembler.note(LeftOutTermRecord(name=name, site=site))
    for name, way, line in _dropped_terms(context, _TERM):
        site = context.assembler.site_of(line)
        context.assembler.note(LeftOutTermRecord(name=name, site=site, way=way))
    return None


def _kept(context: ProbeContext) -> Iterator[tuple[str, Node]]:
    """Yield the terms that attributes of modules hold."""
    for module in context.named.modules:
        if type(module).__module__.startswith("torch."):
            continue
        for name, value in vars(module).items():
            if type(value) is Tensor and _TERM.search(name) and value.numel() == 1:
                node = value.grad_fn
                if node is not None and _is_left_out(context, node):
                    yield name, node


def _returned(context: ProbeContext) -> Iterator[tuple[str, Line, Node]]:
    """Yield the terms that calls of modules return beside other results, with the calls' lines."""
    for call in context.capture.modules.calls:
        line = call.line
        if line is None or len(call.outputs) < 2 or is_installed(line.code.co_filename):
            continue
        numbers = [
            one.node for one in call.outputs if one.node is not None and _is_number(one, one.node)
        ]
        left_out = [node for node in numbers if _is_left_out(context, node)]
        if len(left_out) != 1:
            continue
        assigned = (name for name in _assigned(line) if not name.startswith("_"))
        names = [name for name in assigned if _TERM.search(name)]
        # Of several names, the source does not tell which part of the result has which.
        if len(names) == 1:
            yield names[0], line, left_out[0]


def _is_number(edge: Edge, node: Node) -> bool:
    metadata = getattr(node, "_input_metadata", ())
    return edge.slot < len(metadata) and tuple(metadata[edge.slot].shape) == ()


def _is_left_out(context: ProbeContext, node: Node) -> bool:
    """Return whether the forward has made a node that the loss does not lead to."""
    number, first = created(node), context.capture.first_number
    is_new = number is not None and number >= first
    return is_new and node not in context.capture.graph.index


def _assigned(line: Line) -> Iterator[str]:
    """Yield the names to which the statement of a line assigns parts of a result."""
    tree = parsed("".join(linecache.getlines(line.code.co_filename)))
    for node in () if tree is None else ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        if node.lineno <= line.number <= (node.end_lineno or node.lineno):
            (target,) = node.targets
            for one in target.elts if isinstance(target, ast.Tuple | ast.List) else ():
                if isinstance(one, ast.Name | ast.Attribute):
                    yield one.id if isinstance(one, ast.Name) else one.attr


class _DroppedTerm(NamedTuple):
    """A value with a gradient that the statements around the loss do not use."""

    name: str
    way: DropWay
    line: Line


class _Located(NamedTuple):
    """A statement, and what is around it."""

    statement: ast.stmt
    block: list[ast.stmt]
    scope: ast.AST


def _dropped_terms(context: ProbeContext, names: re.Pattern[str]) -> Iterator[_DroppedTerm]:
    """Yield the terms that are computed in the block of the loss, and lost there.

    Args:
        context: What is judged.
        names: Names of terms, for variables that nothing reads.
    """
    found = _loss(context)
    if found is None:
        return
    located, line = found
    # Only calls that make nodes have lines: their result has a gradient.
    ran = {one.number for one in context.capture.sites.lines if one and one.code is line.code}
    for way, statement, name in (*_lost(located), *_unread(located, names)):
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        if ran.intersection(lines):
            yield _DroppedTerm(name, way, Line(line.code, statement.lineno))


def _loss(context: ProbeContext) -> tuple[_Located, Line] | None:
    """Return the statement that makes the loss."""
    node: Node
    for node in context.capture.graph.nodes[:_NEAR]:
        line = context.capture.line_of(node)
        # Another cell of a notebook may read what this one assigns.
        if line is None or not line.code.co_filename.endswith(".py"):
            continue
        if is_installed(line.code.co_filename):
            continue
        located = _located(tree_of(line.code.co_filename), line.number)
        if located is not None and isinstance(located.statement, ast.Assign | ast.Return):
            return located, line
    return None


def _located(tree: ast.Module, number: int) -> _Located | None:
    """Return the innermost simple statement of a line."""
    found, scope = None, None
    waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while waiting:
        node, scope = waiting.pop()
        for block in _blocks(node):
            for one in block:
                if one.lineno <= number <= (one.end_lineno or one.lineno):
                    found = _Located(one, block, scope)
                    waiting.append((one, one if isinstance(one, _SCOPES) else scope))
    return found


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _lost(located: _Located) -> Iterator[tuple[DropWay, ast.stmt, str]]:
    """Yield sums that no variable takes, and the value that the statement of the loss replaces."""
    name = _target(located.statement)
    if name is None:
        return
    for one in located.block:
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.BinOp) and _reads(one, name):
            yield "discarded", one, name
    if _reads(located.statement, name):
        return
    for one in reversed(located.block[: located.block.index(located.statement)]):
        if _target(one) == name and not _reads(one, name) and not _is_plain(one):
            yield "replaced", one, name
        if _mentions(one, name):
            return


def _unread(located: _Located, names: re.Pattern[str]) -> Iterator[tuple[DropWay, ast.stmt, str]]:
    """Yield the terms of the block that nothing in the function reads."""
    read = {one.id for one in _names(located.scope) if not isinstance(one.ctx, ast.Store)}
    shared = {
        name
        for node in ast.walk(located.scope)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    for one in located.block if not read & _LOOKS else ():
        name = _target(one) or ""
        is_term = names.search(name) or _DIVERGENCE.search(name)
        is_lost = is_term and name not in read | shared and not _is_plain(one)
        if is_lost and one is not located.statement:
            yield "unread", one, name


def _target(statement: ast.stmt) -> str | None:
    """Return the only variable that a statement assigns; None for all other statements."""
    target = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        (target,) = statement.targets
    return target.id if isinstance(target, ast.Name) else None


def _is_plain(statement: ast.stmt) -> bool:
    """Return whether a statement assigns a number without gradient, as for a log."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _PLAIN


def _reads(statement: ast.stmt, name: str) -> bool:
    return any(not isinstance(one.ctx, ast.Store) for one in _names(statement) if one.id == name)


def _mentions(statement: ast.stmt, name: str) -> bool:
    return any(one.id == name for one in _names(statement))


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))
