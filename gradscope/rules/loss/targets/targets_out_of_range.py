"""GS722: targets that the last activation of the model cannot reach."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.forward import UnreachableTargetRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import is_averaged_into_loss
from gradscope.rules.helpers.source_text import line_of
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_EVEN = frozenset({"AbsBackward0", "PowBackward0", "SqrtBackward0"})
_REDUCTIONS = ("LinalgVectorNorm", "Mean", "Norm", "Sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsOutOfRange(Rule):
    """The model's last activation cannot give the values of its targets.

    What it finds:
        A regression whose prediction ends in a ReLU, a sigmoid, a tanh, a clamp or another bounded
        function, and whose targets lie far beyond its bounds: negative targets behind a ReLU, boxes
        in pixels behind `clamp(0, 1)`. Also `binary_cross_entropy_with_logits` with targets outside
        of 0 to 1, such as masks of 0 and 255.

    Why it matters:
        The model cannot learn these targets. Its outputs run into the end of the range, where the
        derivative is 0 or close to it, and stay there.

    How it is measured:
        The rule looks at mean squared, absolute and Huber losses, and at squares and magnitudes of
        differences by hand, of at least 16 targets. It follows the prediction back to its last
        activation, through selections and constant factors. What no prediction in the range can
        reach is the mean squared distance of the targets from it, divided by their variance. From
        1 on, even the best prediction is worse than the targets' mean, which is an error.
        Differences that are masked before they are averaged are not judged. Nor are targets that
        the model computes.

    How to fix it:
        Leave the last activation away, or scale the targets to its range.

    When it may be wrong:
        If large noise is added to targets that do lie in the range.

    Source:
        Goodfellow et al. 2016, "Deep Learning", section 6.2.2: the output unit follows from the
        distribution of the targets.
        Measured: targets that fill the range 0, and 0.02 with noise of a tenth of it; standardised
        targets behind a ReLU 0.5, behind a sigmoid 0.6, behind a tanh 0.15.
    """

    code: ClassVar[str] = "GS722"
    name: ClassVar[str] = "targets-out-of-range"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS105", "GS106")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="lost"),)
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    lost: float = 0.25
    """Share of the targets' variance that no prediction can reach. Measured."""
    error: float = 1.0
    """Share from which on it is an error: the targets' mean is a better prediction."""
    outside: float = 0.1
    """Least share of targets beyond the range, 0 to 1. Chosen: fewer may be outliers."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every bound that keeps predictions from their targets."""
        found = dict[tuple[int | None, str], UnreachableTargetRecord]()
        for record in context.recording.evidence_of(UnreachableTargetRecord):
            if not _is_compared_whole(context, record.result.node):
                continue
            site = self._site(context, record)
            context.measured(self.code, "lost", record.lost, self.lost, site=site)
            if record.lost >= self.lost and record.outside >= self.outside * record.elements:
                found.setdefault((site, record.operation), record)
        for (site, _), record in found.items():
            yield self._finding(context, site, record)

    @staticmethod
    def _site(context: RuleContext, record: UnreachableTargetRecord) -> int | None:
        if record.bound is None:
            return record.site
        return line_of(context, context.recording.nodes[record.bound.node])

    def _finding(
        self, context: RuleContext, site: int | None, record: UnreachableTargetRecord
    ) -> Finding:
        span = _span(record)
        subject = "expects targets" if record.bound is None else "gives values"
        return self.finding(
            context,
            message=(
                f"{record.operation} {subject} {span}, but {record.outside} of {record.elements} "
                f"targets lie outside: they go from {short(record.least)} to {short(record.most)}"
            ),
            remedy=f"scale the targets to values {span}"
            if record.bound is None
            else f"leave {record.operation} away, or scale the targets to values {span}",
            site=site,
            related=(context.related(record.site if record.site != site else None, "the loss"),),
            severity="error" if record.lost >= self.error else None,
            evidence={
                "operation": record.operation,
                "outside": record.outside,
                "targets": record.elements,
                "lost": record.lost,
                "limit": self.lost,
            },
            count=record.outside,
        )


def _span(record: UnreachableTargetRecord) -> str:
    if math.isinf(record.high):
        return f"from {short(record.low)} on"
    if math.isinf(record.low):
        return f"up to {short(record.high)}"
    return f"from {short(record.low)} to {short(record.high)}"


def _is_compared_whole(context: RuleContext, result: int) -> bool:
    """Return whether every element counts in the loss: nothing masks them before they are averaged.

    Targets may have numbers that say that they are to be left out.
    """
    node = context.recording.nodes[result]
    while not _is_number(node):
        users = [context.recording.nodes[one] for one in context.users.get(node.index, ())]
        if len(users) != 1:
            return False
        (node,) = users
        if node.operation.startswith(_REDUCTIONS):
            break
        if node.kind != "view" and node.operation not in _EVEN:
            return False
    return node.depth == 0 or is_averaged_into_loss(context, node.index)


def _is_number(node: NodeRecord) -> bool:
    dims = node.dims()
    return dims is not None and math.prod(dims) == 1
