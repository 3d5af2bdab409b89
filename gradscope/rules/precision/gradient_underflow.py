"""GS601: gradients too small for their type, though the loss is scaled."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.failures import FlushRecord
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.flushed_gradients import (
    SMALLEST,
    Limits,
    is_scaled,
    loss_scale,
    loss_site,
    parameters_flushed,
    share_flushed,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientUnderflow(Rule):
    """Half precision flushes gradients to zero that a larger loss scale would save.

    What it finds:
        Gradients of float16 that are zero although the loss is scaled, and gradients of bfloat16 or
        eight bits that are zero because the type holds nothing so small.

    Why it matters:
        A flushed element does not train its weight, while the rest continues to train.

    How it is measured:
        Backward runs a second time from the loss times a power of two: the largest of 2^16, 2^12,
        2^8 and 2^4 that keeps everything finite. An element was flushed if it was zero and is not
        zero then. The share is relative to all elements that are not zero then. A loss counts as
        scaled if its last factor is 16 or more.

    How to fix it:
        Raise the scale: `torch.amp.GradScaler` finds the largest that does not overflow.

    Fix safety:
        Unsafe: later steps may have larger gradients, which overflow. The number that scales the
        loss, on its line or as `init_scale`, becomes a sixteenth of the largest scale that fits, or
        more if that is too small. A script whose loss has no scale gets a `GradScaler`, as for
        GS604.

    When it may be wrong:
        Small shares do no harm: with 5 % of the elements flushed the accuracy stayed the same, with
        25 % it fell by less than 0.01.

    Source:
        Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740), section 3.2.
        Measured: change of accuracy by share of flushed elements: 0.05: none; 0.28: -0.004;
        0.94: -0.12.
    """

    code: ClassVar[str] = "GS601"
    name: ClassVar[str] = "gradient-underflow"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "precision"
    lasts: ClassVar[Lasting] = "on"
    explains: ClassVar[tuple[str, ...]] = ("GS102", "GS105", "GS109", "GS110", "GS204")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_flushed"),)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe", reveals=("GS109", "GS110"), settles=("GS601", "GS604")
    )
    needs: ClassVar[Needs] = (probe_ran("half precision"),)

    note: float = 0.05
    """Share of elements, 0 to 1. Measured: at 0.05 the accuracy is unchanged."""
    warning: float = 0.25
    """Share of elements, 0 to 1. Measured: at 0.28 the accuracy changes by -0.004."""
    error: float = 0.75
    """Share of elements, 0 to 1. Measured: at 0.94 the accuracy changes by -0.12."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the backward."""
        scaled = is_scaled(context)
        limits = Limits(self.note, self.warning, self.error)
        for record in context.recording.evidence_of(FlushRecord):
            share = share_flushed(record)
            severity = limits.severity(share)
            context.measured(
                self.code,
                "share_flushed",
                share,
                self.note,
                subject=record.dtype,
                site=record.site,
            )
            if severity is None or (record.dtype == "float16" and not scaled):
                continue
            scale = loss_scale(context) if scaled else 1.0
            why = f", even with the loss scaled by {short(scale, 6)}" if scaled else ""
            yield self.finding(
                context,
                message=f"{share:.0%} of the gradient's elements are flushed to zero: "
                f"{record.dtype} holds nothing below {short(SMALLEST[record.dtype], 1)}{why}",
                remedy=f"scale the loss by up to {scale * record.factor:,.0f}, which does not "
                "overflow",
                site=loss_site(context),
                related=(context.related(record.site, f"{record.dtype} is chosen here"),),
                severity=severity,
                parameters=parameters_flushed(record, self.note),
                evidence={
                    "share_flushed": share,
                    "limit": getattr(limits, severity),
                    "flushed": record.flushed,
                    "elements": record.elements,
                    "dtype": record.dtype,
                    "loss_scale": scale,
                    "factor_that_fits": record.factor,
                },
                count=record.flushed,
            )
