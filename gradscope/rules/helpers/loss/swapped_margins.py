"""Triplet losses that draw negatives to their anchor, by the names of their distances."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from gradscope.recording.records import NodeRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.linear_ways import (
    linear_signs,
    signs_of,
    stat_of,
)
from gradscope.rules.helpers.source_text import statement_texts

_HINGES = ("ReluBackward", "ClampMinBackward", "ClampBackward", "SoftplusBackward")
_DISTANCES = (
    "CdistBackward",
    "EuclideanDistBackward",
    "LinalgVectorNormBackward",
    "NormBackward",
    "PowBackward",
    "SqrtBackward",
)
_POSITIVE = frozenset({"ap", "pos", "positive", "positives"})
_NEGATIVE = frozenset({"an", "neg", "negative", "negatives"})
_CALLS = frozenset({"triplet_margin_loss", "triplet_margin_with_distance_loss"})
_MODULES = frozenset({"TripletMarginLoss", "TripletMarginWithDistanceLoss"})
_Kind = TypeVar("_Kind", bound=ast.AST)
_TRIPLET = 3
"""Number of tensors that a triplet loss compares."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class SwappedMargin(NamedTuple):
    """A hinge that makes the distance of positives larger than that of negatives."""

    hinge: NodeRecord
    positive: str
    """Source text of what is named as positive."""
    negative: str


def swapped_margins(context: RuleContext) -> Iterator[SwappedMargin]:
    """Yield the hinges of the loss whose names say that their sides are swapped."""
    loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
    for index, sign in loss.items():
        node = context.recording.nodes[index]
        site = context.site(node.site)
        if site is None or sign <= 0 or not node.operation.startswith(_HINGES):
            continue
        yield from _in_call(context, node, site)
        difference = _difference(context, index)
        named = None if difference is None else _named(context, difference)
        if named is not None:
            yield SwappedMargin(node, *named)


def _in_call(context: RuleContext, node: NodeRecord, site: Site) -> Iterator[SwappedMargin]:
    """Yield a call of torch's triplet loss whose second argument is named as negative."""
    module = None
    if node.module_call is not None:
        module = context.recording.modules[context.recording.calls[node.module_call].module]
    is_module = module is not None and module.class_name in _MODULES
    for call in _nodes(context, site, ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        if (is_module or name in _CALLS) and len(call.args) == _TRIPLET:
            _, second, third = call.args
            if _words(second) & _NEGATIVE and _words(third) & _POSITIVE:
                yield SwappedMargin(node, ast.unparse(third), ast.unparse(second))
                return


def _difference(context: RuleContext, hinge: int) -> NodeRecord | None:
    """Return the difference of two distances that a hinge limits, None for anything else."""
    inputs = context.inputs(hinge)
    while len(inputs) == 1:
        node = context.recording.nodes[inputs[0]]
        inputs = context.inputs(node.index)
        if len(inputs) == 1 and signs_of(context, node.index) != (1,):
            return None
    if len(inputs) != 2 or node.operation != "SubBackward0":
        return None
    return node if all(_is_distance(context, one) for one in inputs) else None


def _is_distance(context: RuleContext, node: int) -> bool:
    """Return whether a tensor is a sum, a mean or a multiple of distances, beside a margin."""
    stat = stat_of(context, node)
    signs: Mapping[int, int] = linear_signs(context, [node])
    ends = [one for one in signs if not signs_of(context, one)]
    return (
        stat is not None
        and stat.minimum >= 0
        and bool(ends)
        and all(signs[one] > 0 for one in ends)
        and all(context.recording.nodes[one].operation.startswith(_DISTANCES) for one in ends)
    )


def _named(context: RuleContext, difference: NodeRecord) -> tuple[str, str] | None:
    """Return the names of both sides if the positive is subtracted from the negative."""
    site = context.site(difference.site)
    differences = [] if site is None else list(_nodes(context, site, ast.BinOp))
    found = [
        (ast.unparse(one.right), ast.unparse(one.left))
        for one in differences
        if isinstance(one.op, ast.Sub)
        and _words(one.left) & _NEGATIVE
        and _words(one.right) & _POSITIVE
        and not _words(one.left) & _POSITIVE
        and not _words(one.right) & _NEGATIVE
    ]
    # Another difference of the line may be the one that the hinge limits.
    is_only = sum(isinstance(one.op, ast.Sub) for one in differences) == 1
    return found[0] if found and is_only else None


def _nodes(context: RuleContext, site: Site, kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield the nodes of a kind in the first text of a line's statement that can be parsed."""
    for text in statement_texts(context, site):
        try:
            tree = ast.parse(text.strip())
        except SyntaxError:
            continue
        yield from (one for one in ast.walk(tree) if isinstance(one, kind))
        return


def _words(value: ast.expr) -> set[str]:
    """Return the words of the names in an expression, in small letters."""
    names = [one.id for one in ast.walk(value) if isinstance(one, ast.Name)]
    names += [one.attr for one in ast.walk(value) if isinstance(one, ast.Attribute)]
    return {word.lower() for name in names for word in _WORD.findall(name)}
