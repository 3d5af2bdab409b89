"""GS718, GS722 and GS739: targets with values that do not fit the loss or the model."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.forward import (
    ProbabilityTargetRecord,
    UnreachableTargetRecord,
    ZeroLabelRecord,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsNotProbabilities(Rule):
    """`cross_entropy` gets shares of the classes that do not add up to 1.

    What it finds:
        `cross_entropy` with labels of several classes for an example, ones and zeros, as for
        `binary_cross_entropy_with_logits`; and with targets that are logits or counts.

    Why it matters:
        The softmax shares 1 among the classes. With three labels of 1 no output is right: the best
        one gives each a third, so that a class competes with others that hold as well, and
        examples with many labels weigh more. A negative target makes the loss unbounded: it falls
        for ever as that class becomes unlikely.

    How it is measured:
        The targets are numbers of the shape of the logits. The rule adds them up over the classes.
        A sum above 1.05 of two classes or more, in `share` of the examples, is a warning. A
        negative target is an error.

    How to fix it:
        Use `binary_cross_entropy_with_logits` for labels that do not exclude each other, and
        `softmax` for targets that are logits.

    When it may be wrong:
        If examples are weighted by the sum of their shares on purpose.

    Source:
        torch documentation, `CrossEntropyLoss`: the target contains class indices or class
        probabilities, and "each value should be between [0, 1]".
    """

    code: ClassVar[str] = "GS739"
    name: ClassVar[str] = "targets-not-probabilities"
    level: ClassVar[Severity] = "warning"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_of_examples"),)
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    share: float = 0.1
    """Share of the examples, 0 to 1, whose targets add up to more than 1. Chosen: fewer may be
    errors in the data.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a loss."""
        found = dict[int | None, ProbabilityTargetRecord]()
        for record in context.recording.evidence_of(ProbabilityTargetRecord):
            context.measured_share(
                self.code,
                "share_of_examples",
                record.several,
                record.examples,
                self.share,
                subject="cross_entropy",
                site=context.site(record.site),
            )
            if record.least < 0 or record.several >= self.share * record.examples:
                found.setdefault(record.site, record)
        for record in found.values():
            message, remedy = _texts(record)
            yield self.finding(
                context,
                message=message,
                remedy=remedy,
                site=record.site,
                severity="error" if record.least < 0 else "warning",
                evidence={
                    "examples": record.examples,
                    "share_of_examples": record.several / record.examples,
                    "largest_sum": record.largest,
                    "least": record.least,
                    "limit": self.share,
                },
                count=record.several,
            )


def _texts(record: ProbabilityTargetRecord) -> tuple[str, str]:
    if record.least < 0:
        return (
            f"targets of cross_entropy are as low as {short(record.least)}: they are not "
            "probabilities, and the loss has no minimum",
            "pass class indices or probabilities: the softmax of targets that are logits",
        )
    several = f"{record.several} of {record.examples} examples"
    if record.are_binary:
        return (
            f"{several} have several labels, up to {short(record.largest)}, but cross_entropy "
            "shares 1 among the classes: they compete with each other",
            "use `binary_cross_entropy_with_logits` for labels that do not exclude each other",
        )
    return (
        f"the targets of {several} add up to as much as {short(record.largest)}, but "
        "cross_entropy expects probabilities",
        "divide the targets of each example by their sum",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsOfZero(Rule):
    """A loss of margins expects labels of -1 and 1, and gets 0 and 1.

    What it finds:
        `soft_margin_loss`, `hinge_embedding_loss`, `margin_ranking_loss` or
        `cosine_embedding_loss`, and a hinge by hand, `clamp(1 - labels * scores, min=0)`, with
        labels of 0 and 1.

    Why it matters:
        A label of 0 multiplies the score away: the term of each negative example is a constant and
        trains nothing. The model learns to call everything positive.

    How it is measured:
        All labels are 0 or 1, and both occur. It is a warning for a hinge that is written by hand,
        and an error for a function of torch, which is documented for -1 and 1.

    How to fix it:
        Use `2 * labels - 1`.

    When it may be wrong:
        If a hinge by hand multiplies by a mask.

    Source:
        torch documentation, `SoftMarginLoss`, `HingeEmbeddingLoss`: "containing 1 or -1".
    """

    code: ClassVar[str] = "GS718"
    name: ClassVar[str] = "labels-of-zero"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS204",)
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a loss."""
        found = dict[int | None, ZeroLabelRecord]()
        for record in context.recording.evidence_of(ZeroLabelRecord):
            found.setdefault(record.site, record)
        for record in found.values():
            by_hand = record.operation == "hinge"
            name = "a hinge" if by_hand else record.operation
            yield self.finding(
                context,
                message=(
                    f"{record.zeros} of {record.labels} labels of {name} are 0 and the others 1, "
                    "but it expects -1 and 1: their terms are constants and train nothing"
                ),
                remedy="use `2 * labels - 1`",
                site=record.site,
                severity="warning" if by_hand else "error",
                evidence={
                    "operation": record.operation,
                    "labels": record.labels,
                    "zeros": record.zeros,
                },
                count=record.zeros,
            )
