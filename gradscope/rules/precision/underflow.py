"""GS601 and GS604: gradients too small for their type, with and without a loss scale."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.flushed_gradients import (
    SMALLEST,
    FlushRule,
    is_scaled,
    loss_scale,
    loss_site,
    parameters_flushed,
    share_flushed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientUnderflow(FlushRule):
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

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the backward."""
        scaled = is_scaled(context)
        for record, severity in self.flushed(context):
            # Float16 without any scale has a rule of its own, whose remedy is a scaler.
            if record.dtype == "float16" and not scaled:
                continue
            scale = loss_scale(context) if scaled else 1.0
            why = f", even with the loss scaled by {short(scale, 6)}" if scaled else ""
            share = share_flushed(record)
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
                    **self.evidence_of(record, severity),
                    "dtype": record.dtype,
                    "loss_scale": scale,
                    "factor_that_fits": record.factor,
                },
                count=record.flushed,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Float16WithoutScaler(FlushRule):
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

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the backward."""
        for record, severity in self.flushed(context):
            # With a scale, it is the scale that is too small, which another rule reports.
            if record.dtype != "float16" or is_scaled(context):
                continue
            chosen = context.site(record.site)
            loss = loss_site(context)
            share = share_flushed(record)
            yield self.finding(
                context,
                message=f"{share:.0%} of the gradient's elements are flushed to zero: float16 "
                f"holds nothing below {short(SMALLEST['float16'], 1)}, and the loss is not scaled",
                remedy="use torch.amp.GradScaler, or bfloat16, which needs no scale",
                # The type is to be changed where it is chosen; without such a line, it is that of
                # the model.
                site=chosen or loss,
                related=(context.related(loss, "the loss is computed here") if chosen else None,),
                severity=severity,
                parameters=parameters_flushed(record, self.note),
                evidence={
                    **self.evidence_of(record, severity),
                    "factor_that_fits": record.factor,
                },
                count=record.flushed,
            )
