"""GS715: different examples with the same output."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import EqualOutputsRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_CAUSES = ("GS101", "GS102", "GS104", "GS106")
"""Rules whose mistakes make outputs equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualOutputs(Rule):
    """The model gives most examples the same output, although their inputs differ.

    What it finds:
        Batches of which most examples get one output, number for number. An example is the last
        step of padded sequences, `output[:, -1]`, which is zero for all but the longest. Others are
        a mask that removes everything, and an index that picks the same row for all.

    Why it matters:
        What the model does with these examples has no influence on the loss, so it learns from the
        few others alone. Their loss only teaches the last layers the average of the targets.

    How it is measured:
        In an inspection the forward runs again. The outputs are compared number for number, among
        examples whose inputs differ. The rule reports more than half of the examples, if they are
        at least three of four. The line is that of the operation from which on their numbers are
        equal; it has to choose among numbers, as an index does, or to multiply by a mask. Models
        whose outputs have few different values are not judged: several groups of examples with one
        output each, or numbers that `round`, `sign`, a nearest code or a comparison made discrete.

    How to fix it:
        Read what belongs to each example: of padded sequences the step at its own length minus one,
        or the last hidden state that the recurrent layer returns for packed sequences.

    When it may be wrong:
        If the examples do not differ in anything that the model is to use, or if it is to answer
        most of them alike, as rays that miss every object.

    Source:
        Issues in public projects on the last step of padded sequences, among them
        keitakurita/practical-torchtext issue 5; mip-NeRF (arXiv 2103.13415), appendix E.2, on
        densities that are zero everywhere.
        Measured: 3 of 3 such models of the tests, and none of 7 healthy ones.
    """

    code: ClassVar[str] = "GS715"
    name: ClassVar[str] = "equal-outputs"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("equal outputs"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the operation that makes examples equal."""
        for record in context.recording.evidence_of(EqualOutputsRecord):
            # Operators are recorded by their methods, as `__getitem__`.
            name = record.operation.strip("_")
            what = "this index" if name == "getitem" else f"{name}()"
            yield self.finding(
                context,
                message=(
                    f"{record.equal} of {record.rows} examples get the same output although their "
                    f"inputs differ: they are equal from {what} on"
                ),
                remedy="read what belongs to each example, such as the step at its own length",
                site=record.site,
                evidence={
                    "operation": record.operation,
                    "equal_examples": record.equal,
                    "examples": record.rows,
                },
                count=record.equal,
                caused_by=_CAUSES,
            )
