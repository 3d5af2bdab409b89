"""GS702: a prediction and a target that broadcast each other."""

import ast
import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.loss.flow import ELEMENTWISE, is_averaged_into_loss
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_BY_HAND = {"mul": "a product", "sub": "a difference"}
_BROADCASTING = frozenset(
    {
        "gaussian_nll_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "mse_loss",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "soft_margin_loss",
    }
)
"""Loss functions that broadcast their operands; others raise an exception."""

_DELIBERATE = ("None", "unsqueeze", "newaxis")
"""Names that mark a deliberate broadcast on a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBroadcast(Rule):
    """The loss compares every prediction with every target.

    What it finds:
        A loss function of two tensors such as `[N, 1]` and `[N]`, or a difference or product whose
        mean or sum is the loss: broadcasting expands both to `[N, N]`. Also a target that was
        expanded to `[N, N]` before, as `reward + discount * next_value` of `[N]` and `[N, 1]`.

    Why it matters:
        No exception is raised and the loss falls. But each prediction moves towards the mean of all
        targets, and the model learns a constant.

    How it is measured:
        The shapes of both operands, where neither is the shape of the result and one has more
        dimensions than the other. Written by hand, only one of the two may come from the model,
        unless the other one does, too, and was squeezed, and no `None` or `unsqueeze` may give one
        of them a dimension;
        and from there to the loss there may be only elementwise operations, sums and means. A
        target of `[N, N]` has to meet N predictions of the model; written by hand, its line must be
        known. There is no threshold.

    How to fix it:
        Give both the same shape: `output.squeeze(-1)`, or `target.unsqueeze(-1)`.

    Fix safety:
        Safe. `.squeeze(…)` is added to the operand with one dimension too many, on the line of the
        comparison. If the line has the operand several times, the other one is unsqueezed before
        it, or the operand is squeezed each time. No edit if the shapes differ in another way, or if
        the line has several comparisons.

    When it may be wrong:
        If every prediction is meant to be compared with every target, and the shapes were made to
        broadcast on another line than that of the comparison.

    Source:
        torch documentation, "Broadcasting semantics", and the warning of `mse_loss` on "a target
        size that is different to the input size".
    """

    code: ClassVar[str] = "GS702"
    name: ClassVar[str] = "loss-broadcast"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS218",)
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", ends_shape="result")
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line."""
        by_line: dict[int | None, list[ComparisonRecord]] = {}
        for record in context.recording.evidence_of(ComparisonRecord):
            if _is_mistaken(context, record):
                by_line.setdefault(record.site, []).append(record)
            elif _meets_pairs(context, record):
                yield self._expanded_target(context, record)
        for records in by_line.values():
            yield self._finding(context, records)

    def _expanded_target(self, context: RuleContext, record: ComparisonRecord) -> Finding:
        left, right = record.left.dims, record.right.dims
        examples, pairs = sorted((math.prod(left), math.prod(right)))
        what = _BY_HAND.get(record.operation, record.operation)
        related = context.related(record.site, "the loss compares them here")
        is_known = record.grown is not None
        return self.finding(
            context,
            message=(
                f"the operands of this line broadcast each other, so that {what} of "
                if is_known
                else f"{what} of "
            )
            + f"{list(left)} and {list(right)} has {pairs:,} pairs instead of {examples:,}: every "
            "prediction meets every target",
            remedy="give both operands the same shape, as by `.squeeze(-1)`"
            if is_known
            else "give the target the shape of the prediction where it is computed",
            site=record.grown if is_known else record.site,
            related=(related,) if is_known else (),
            evidence={
                "operation": record.operation,
                "left": str(list(left)),
                "right": str(list(right)),
                "pairs": pairs,
                "pairs_meant": examples,
            },
        )

    def _finding(self, context: RuleContext, records: list[ComparisonRecord]) -> Finding:
        first = records[0]
        left, right, result = first.left.dims, first.right.dims, _result(first)
        meant = max(math.prod(left), math.prod(right))
        what = _BY_HAND.get(first.operation, first.operation)
        return self.finding(
            context,
            message=f"{what} of {list(left)} and {list(right)} broadcasts to {list(result)}: "
            f"every prediction meets every target, {math.prod(result):,} pairs instead of "
            f"{meant:,}",
            remedy=_remedy(left, right),
            site=first.site,
            evidence={
                "operation": first.operation,
                "left": str(list(left)),
                "right": str(list(right)),
                "result": str(list(result)),
                "pairs": math.prod(result),
                "pairs_meant": meant,
            },
            count=len(records),
        )


def _is_mistaken(context: RuleContext, record: ComparisonRecord) -> bool:
    left, right, result = record.left.dims, record.right.dims, _result(record)
    elements = math.prod(left), math.prod(right)
    # Nothing was expanded if one operand has as many elements as the result.
    if math.prod(result) <= max(elements):
        return False
    in_graph = [ref for ref in (record.left_tensor, record.right_tensor) if ref is not None]
    if record.operation not in _BY_HAND:
        # Shapes of equal rank, as [B, N, 1] and [B, 1, N], may be intended pairs.
        is_mistaken = len(left) != len(right) or (len(left) == 2 and len(in_graph) == 1)
        return record.operation in _BROADCASTING and is_mistaken
    nodes = context.recording.nodes
    return (
        # `[N, 1]` and `[N]` are the same examples. Two different sizes are pairs of two groups, as
        # of points and centres.
        len(left) != len(right)
        and elements[0] == elements[1]
        and (len(in_graph) == 1 or _lost_a_dimension(context, record))
        # `x[:, None]` on another line leaves this node.
        and nodes[in_graph[0].node].operation != "UnsqueezeBackward0"
        and not _looks_deliberate(context, record)
        and is_averaged_into_loss(context, record.result.node)
    )


def _lost_a_dimension(context: RuleContext, record: ComparisonRecord) -> bool:
    """Return whether both operands are made by the model, and only one of them was squeezed.

    The other one has rows of one element. A view may be meant for all pairs, and so may outputs
    that are compared with each other.
    """
    if record.left_tensor is None or record.right_tensor is None:
        return False
    sides = (record.left.dims, record.left_tensor), (record.right.dims, record.right_tensor)
    (_, squeezed), (more, column) = sorted(sides, key=lambda side: len(side[0]))
    nodes = context.recording.nodes
    return (
        len(more) == 2
        and more[1] == 1
        and nodes[column.node].kind != "view"
        and nodes[squeezed.node].operation.startswith("Squeeze")
        # A column less its own squeezed copy is meant for all pairs of one output.
        and all(made.node != column.node for made in context.successors[squeezed.node])
    )


def _meets_pairs(context: RuleContext, record: ComparisonRecord) -> bool:
    """Return whether predictions for N examples meet targets of `[N, N]`."""
    sides = [(record.left.dims, record.left_tensor), (record.right.dims, record.right_tensor)]
    (fewer, in_graph), (more, _) = sorted(sides, key=lambda side: math.prod(side[0]))
    count = math.prod(fewer)
    if fewer not in ((count,), (count, 1)) or more != (count, count) or count == 1:
        return False
    if in_graph is None:
        return False
    return record.operation in _BROADCASTING or (
        record.operation in _BY_HAND
        and record.grown is not None
        and not _looks_deliberate(context, record)
        and is_averaged_into_loss(context, record.result.node)
    )


def _looks_deliberate(context: RuleContext, record: ComparisonRecord) -> bool:
    """Return whether the line gives an operand a dimension for the broadcast."""
    sources = [site.source for site in map(context.site, (record.site, record.grown)) if site]
    if not any(word in source for word in _DELIBERATE for source in sources):
        return False
    operands = _only_operands(sources[0], record.operation) if len(sources) == 1 else None
    if operands is None:
        return True
    for value, tensor in zip(operands, (record.left_tensor, record.right_tensor), strict=True):
        # Of data, it is not known which part of an expression has their dimensions.
        if _is_expanded(value) or (tensor is None and _has_word(value)):
            return True
        if tensor is not None and _is_made_of_column(context, tensor.node):
            return True
    return False


def _only_operands(source: str, operation: str) -> tuple[ast.expr, ast.expr] | None:
    """Return both operands of the only difference, or product, of tensors on a line."""
    wanted = ast.Mult if operation == "mul" else ast.Sub
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:
        return None
    found = [
        (one.left, one.right)
        for one in ast.walk(tree)
        if isinstance(one, ast.BinOp) and isinstance(one.op, wanted)
        if not isinstance(one.left, ast.Constant) and not isinstance(one.right, ast.Constant)
    ]
    return found[0] if len(found) == 1 and operation in _BY_HAND else None


def _is_expanded(value: ast.expr) -> bool:
    """Return whether an expression adds a dimension last, or to what it computes of one tensor."""
    if isinstance(value, ast.Subscript):
        return _has_word(value.slice) or _is_expanded(value.value)
    if isinstance(value, ast.UnaryOp):
        return _is_expanded(value.operand)
    if isinstance(value, ast.BinOp):
        sides = [one for one in (value.left, value.right) if not isinstance(one, ast.Constant)]
    elif isinstance(value, ast.Call):
        given = [one for one in value.args if not isinstance(one, ast.Constant)]
        of = value.func.value if isinstance(value.func, ast.Attribute) else None
        if isinstance(value.func, ast.Attribute) and value.func.attr in _DELIBERATE:
            return True
        # `x.abs()` computes of one tensor, and so does `torch.abs(x)`.
        sides = given if given else [] if of is None else [of]
    else:
        return False
    return len(sides) == 1 and _is_expanded(sides[0])


def _has_word(value: ast.expr) -> bool:
    return any(word in ast.unparse(value) for word in _DELIBERATE)


def _is_made_of_column(context: RuleContext, node: int) -> bool:
    """Return whether elementwise operations made a tensor of one that got a dimension."""
    waiting, seen = [node], set[int]()
    while waiting:
        one = context.recording.nodes[waiting.pop()]
        if one.operation == "UnsqueezeBackward0":
            return True
        if one.index not in seen and one.operation in ELEMENTWISE:
            waiting += [ref.node for ref in context.successors.get(one.index, ())]
        seen.add(one.index)
    return False


def _result(record: ComparisonRecord) -> tuple[int, ...]:
    rank = max(len(record.left.dims), len(record.right.dims))
    left, right = (
        (1,) * (rank - len(shape.dims)) + shape.dims for shape in (record.left, record.right)
    )
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class SqueezedDimension:
    """The dimension that one operand has and the other lacks."""

    is_of_first: bool
    """Whether the first operand has it."""
    position: int
    """Its position; -1 if it is the last one."""


def squeezed_dimension(left: tuple[int, ...], right: tuple[int, ...]) -> SqueezedDimension | None:
    """Return the dimension of size 1 without which both shapes are equal; None without one."""
    longer, shorter = (left, right) if len(left) > len(right) else (right, left)
    for position in range(len(longer)):
        if longer[position] == 1 and longer[:position] + longer[position + 1 :] == shorter:
            is_last = position == len(longer) - 1
            return SqueezedDimension(
                is_of_first=longer is left, position=-1 if is_last else position
            )
    return None


def _remedy(left: tuple[int, ...], right: tuple[int, ...]) -> str:
    found = squeezed_dimension(left, right)
    if found is None:
        return "give both the same shape before they are compared"
    which = "first" if found.is_of_first else "second"
    return f"give both the same shape: `.squeeze({found.position})` on the {which} operand"
