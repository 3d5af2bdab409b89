"""GS604: float16 gradients without loss scaling."""

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
    loss_site,
    parameters_flushed,
    share_flushed,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Float16WithoutScaler(Rule):
    """Small float16 gradients are flushed to zero because the loss is not scaled.

    What it finds:
        Gradients that go through float16, from a loss without a scale, of which a share is zero
        only because float16 holds nothing below 6e-8.

    Why it matters:
        A flushed element does not train its weight. If all are flushed, the loss stays constant,
        without an exception.

    How it is measured:
        Backward runs a second time from the loss times a power of two: the largest of 2^16, 2^12,
        2^8 and 2^4 that keeps everything finite. An element was flushed if it was zero and is not
        zero then. The share is relative to all elements that are not zero then. A loss counts as
        scaled if its last factor is 16 or more.

    How to fix it:
        `scaler = torch.amp.GradScaler(device)`, then `scaler.scale(loss).backward()`,
        `scaler.step(optimizer)` and `scaler.update()`. Or compute in bfloat16, which has the range
        of float32 and needs no scale.

    Fix safety:
        Unsafe: the scaler leaves out steps whose gradients overflow. A script with one backward and
        one step gets a `GradScaler` before its loop; the gradients are unscaled before they are
        clipped. No edit if the script reads gradients. Otherwise the only `torch.float16` of the
        line that chooses the type becomes `torch.bfloat16`, which has fewer digits.

    When it may be wrong:
        If the loss is scaled outside the inspected code, such as in a training loop around the loss
        function. Small shares are harmless and are notes.

    Source:
        Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740), section 3.2; torch
        documentation, "Automatic Mixed Precision", gradient scaling.
        Measured: change of accuracy by share of flushed elements: 0.05: none; 0.28: -0.004;
        0.94: -0.12.
    """

    code: ClassVar[str] = "GS604"
    name: ClassVar[str] = "float16-without-scaler"
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
        limits = Limits(self.note, self.warning, self.error)
        for record in context.recording.evidence_of(FlushRecord):
            share = share_flushed(record)
            context.measured(
                self.code,
                "share_flushed",
                share,
                self.note,
                subject=record.dtype,
                site=record.site,
            )
            severity = limits.severity(share)
            if severity is None or record.dtype != "float16" or is_scaled(context):
                continue
            chosen = context.site(record.site)
            loss = loss_site(context)
            yield self.finding(
                context,
                message=f"{share:.0%} of the gradient's elements are flushed to zero: float16 "
                f"holds nothing below {short(SMALLEST['float16'], 1)}, and the loss is not scaled",
                remedy="use torch.amp.GradScaler, or bfloat16, which needs no scale",
                site=chosen or loss,
                related=(context.related(loss, "the loss is computed here") if chosen else None,),
                severity=severity,
                parameters=parameters_flushed(record, self.note),
                evidence={
                    "share_flushed": share,
                    "limit": getattr(limits, severity),
                    "flushed": record.flushed,
                    "elements": record.elements,
                    "factor_that_fits": record.factor,
                },
                count=record.flushed,
            )
