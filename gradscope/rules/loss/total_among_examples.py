"""GS729: totals over the batch that are added to the loss of each example."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import is_averaged_into_loss
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_ADDS = frozenset({"AddBackward0", "SubBackward0"})
_SUMS = ("NansumBackward", "SumBackward")
_WEIGHTS = frozenset({"DivBackward0", "MulBackward0", "NegBackward0", "RsubBackward1"})
_MEANS = ("Mean", "NanmeanBackward")
_LAYERS = ("Addmm", "Baddbmm", "Bmm", "Convolution", "Embedding", "Linear", "Mm", "Mv")
"""Operations of layers, which read data: a penalty on weights has none."""


class _Total(NamedTuple):
    """A total over the batch, and the operation that adds it to what each example has."""

    sum: NodeRecord
    add: NodeRecord
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalAmongExamples(Rule):
    """A total over the batch is added to the loss of each example, and the mean is taken.

    What it finds:
        One term of a loss that is summed over the batch, too, where the other has one value for
        each example: `(prior + log_determinants.sum()).mean()` in place of `.sum(dim=-1)`.

    Why it matters:
        Broadcasting adds the total to every example, so that the mean holds it whole. The term
        weighs as many times as much as there are examples, and changes with the batch size.

    How it is measured:
        The shapes of both terms of a sum or difference: one is `[N]` or `[N, 1]`, the other is a
        number that a sum of a tensor with a dimension of N makes, alone or with constant factors.
        A layer computed this tensor, so that it is no penalty on weights, and from the sum of both
        to the loss there are a mean and elementwise operations only. There is no threshold.

    How to fix it:
        Sum over the features alone, as by `.sum(dim=-1)`, or divide the total by the number of
        examples.

    When it may be wrong:
        If the tensor has another dimension that is as large as the batch by chance, and the total
        is meant for each example, such as a penalty on the outputs of a layer for a fixed grid.

    Source:
        torch documentation, "Broadcasting semantics". Dinh et al. 2017, "Density estimation using
        Real NVP" (arXiv 1605.08803), equation 3: the log-determinant of each example.
    """

    code: ClassVar[str] = "GS729"
    name: ClassVar[str] = "total-among-examples"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes such a total."""
        found = {total.sum.site: total for total in _totals(context)}
        for total in found.values():
            is_elsewhere = total.add.site != total.sum.site
            yield self.finding(
                context,
                message=(
                    f"this total over the batch is added to the loss of each of {total.rows:,} "
                    f"examples: in their mean it weighs {total.rows:,} times as much"
                ),
                remedy="sum over the features alone, as by .sum(dim=-1)",
                site=total.sum.site,
                related=(
                    context.related(total.add.site, "added to each example here")
                    if is_elsewhere
                    else None,
                ),
                parameters=sorted(context.parameters_behind([total.sum.index])),
                evidence={"examples": total.rows},
                count=total.rows,
            )


def _totals(context: RuleContext) -> Iterator[_Total]:
    nodes = context.recording.nodes
    for node in context.first.nodes:
        operands = [nodes[ref.node] for ref in context.successors.get(node.index, ())]
        # A summand without an edge is data, whose total trains nothing.
        if node.operation not in _ADDS or len(operands) != 2:
            continue
        for number, other in (operands, operands[::-1]):
            rows = _rows(other)
            total = _sum_behind(context, number) if number.dims() == () and rows > 1 else None
            if (
                total is not None
                and rows in _summed(context, total)
                and _reads_data(context, total)
                and _is_in_mean(context, node)
            ):
                yield _Total(total, node, rows)


def _rows(node: NodeRecord) -> int:
    """Return the length of `[N]` or `[N, 1]`, 0 for another shape."""
    dims = node.dims() or ()
    return dims[0] if len(dims) == 1 or (len(dims) == 2 and dims[1] == 1) else 0


def _sum_behind(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    """Return the sum that makes a number, alone or with constant factors."""
    while not node.operation.startswith(_SUMS):
        inputs = context.successors.get(node.index, ())
        # A constant factor has no edge.
        if len(inputs) != 1 or not (node.kind == "view" or node.operation in _WEIGHTS):
            return None
        node = context.recording.nodes[inputs[0].node]
    return node


def _summed(context: RuleContext, total: NodeRecord) -> tuple[int, ...]:
    """Return the dimensions of what is summed up."""
    (given, *_) = context.successors.get(total.index, ()) or (None,)
    shape = None if given is None else context.recording.nodes[given.node].outputs[given.slot]
    return () if shape is None else shape.dims


def _reads_data(context: RuleContext, total: NodeRecord) -> bool:
    return any(node.operation.startswith(_LAYERS) for node in context.behind([total.index]))


def _is_in_mean(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether the next reduction of a sum of terms is a mean, on the way to the loss."""
    waiting = [node.index]
    while waiting:
        for user in context.users.get(waiting.pop(0), ()):
            record = context.recording.nodes[user]
            if record.operation.startswith(_MEANS):
                return is_averaged_into_loss(context, node.index)
            if not record.operation.startswith(_SUMS) and record.dims() == node.dims():
                waiting.append(user)
    return False
