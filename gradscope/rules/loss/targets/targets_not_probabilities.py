"""GS739: targets of a cross-entropy that are not probabilities."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.forward import ProbabilityTargetRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


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
