"""Finds terms of a loss that a forward computes, and that the loss does not contain."""

import ast
import linecache
import re
from collections.abc import Iterator

from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.source.lines import Line, created
from gradscope.capture.source.statements import parsed
from gradscope.capture.step.graph import Edge
from gradscope.capture.training.locations import is_installed
from gradscope.probes.context import ProbeContext
from gradscope.probes.dropped_terms import dropped_terms
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.forward import LeftOutTermRecord

_TERM = re.compile(
    r"aux|balanc|commit|penal|regulari[sz]|sparsity|(^|_)reg(_|$)|_loss(es)?$|^loss_", re.IGNORECASE
)
"""Names of terms."""


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
    for name, way, line in dropped_terms(context, _TERM):
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
