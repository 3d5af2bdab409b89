"""GS104: numbers of the forward that are not finite, and matter."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.forward_origins import (
    ForwardOrigin,
    certainty,
    forward_origins,
    line_evidence,
    other_locations,
)
from gradscope.rules.helpers.non_finite.gradient_breaks import broken_steps
from gradscope.rules.helpers.source_text import line_of
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteForward(Rule):
    """The forward makes NaN or infinity, and the loss becomes non-finite.

    What it finds:
        The first operation of the forward that makes NaN or infinity from finite numbers, if that
        reaches the loss. Or the parameter, buffer or batch that contains such numbers from the
        start. If the loss stays finite and only gradients break, GS103 reports it.

    Why it matters:
        A NaN loss makes every gradient NaN, and one step turns every weight into NaN.

    How it is measured:
        If the loss is not finite, the forward runs again from the same random state, and the rule
        compares the operands of every operation with its result. An infinity that is written on
        purpose does not count, such as the -inf of a mask that softmax turns into zero. If NaN
        results from an earlier infinity, the finding names the operation that made the infinity. A
        training step that was not captured is read when backward begins: the graph still holds what
        its operations saved. The finding then names the lines of the same operations in the last
        captured step, and says so. If the graph shows nothing, the rule counts the steps whose loss
        and gradients are not finite until the end of the run.

    How to fix it:
        Write the function in its stable form: log_softmax for the log of a softmax, losses with
        logits, a small number in a denominator or under a root. Leave each row of a masked
        attention at least one position. In float16 keep sums and powers in float32.

    When it may be wrong:
        A model that draws random numbers outside of torch, random and numpy may not repeat its
        forward. In compiled code only the loss itself is judged.

    Source:
        Measured: with this search in the forward and GS103 in the backward, nine of nine models
        whose parameters got NaN or infinity were located; `torch.autograd.detect_anomaly` blamed
        another operation for three of them, such as the multiplication after a fully masked
        softmax.
    """

    code: ClassVar[str] = "GS104"
    name: ClassVar[str] = "non-finite-forward"
    level: ClassVar[Severity] = "error"
    judges_late: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = (
        "GS101",
        "GS102",
        "GS103",
        "GS105",
        "GS106",
        "GS108",
        "GS109",
        "GS110",
        "GS111",
        "GS112",
        "GS204",
        "GS408",
        "GS602",
        "GS601",
        "GS603",
        "GS604",
    )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every origin of a loss that is not finite."""
        # A step that the script or a scaler leaves out breaks no weights.
        if context.run is not None and context.run.is_left_out:
            return
        loss = loss_word(context)
        lost = [one for one in context.shared(forward_origins) if one.seen.reaches_loss]
        for origin in lost:
            yield self._finding(context, origin, loss or "not finite")
        if loss and not lost:
            yield self._unlocated(context, loss)

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a loss that is non-finite from a step on."""
        for broken in broken_steps(context):
            if math.isfinite(broken.loss):
                continue
            yield self.finding(
                context,
                message=f"the loss of step {broken.step:,} is {_word(broken.loss)}, and its "
                f"gradients make the weights non-finite{broken.followers}",
                remedy=broken.remedy,
                site=broken.backward.site,
                related=(broken.related,),
                parameters=broken.parameters,
                evidence={"loss": _word(broken.loss)},
                count=broken.count,
                step=broken.step,
            )

    def _finding(self, context: RuleContext, origin: ForwardOrigin, loss: str) -> Finding:
        return self.finding(
            context,
            message=f"{origin.made}; the loss is {loss}{certainty(context, origin.node)}",
            remedy=origin.cause.remedy,
            site=origin.position(context),
            related=(origin.taken_in(context), *other_locations(context, origin.site)),
            parameters=_broken_parameters(context),
            modules=origin.modules(context),
            evidence={**origin.evidence, **line_evidence(context, origin.node)},
            caused_by=("GS101",) if origin.cause.by_growth else (),
            explains=("GS104",) if context.run is not None else (),  # in later steps
        )

    def _unlocated(self, context: RuleContext, loss: str) -> Finding:
        reason = context.probe_skip_reason("non-finite")
        why = f" ({reason})" if reason else ""
        return self.finding(
            context,
            message=f"the loss is {loss}, and the operation that made it was not observed{why}",
            remedy="check the batch, the weights and the inputs of the loss with torch.isfinite",
            site=line_of(context, context.first.nodes[0]) if context.first.nodes else None,
            parameters=_broken_parameters(context),
            evidence={"loss": loss},
        )


def loss_word(context: RuleContext) -> str | None:
    """Return how a loss that is not finite is written, None for another one."""
    loss = None if context.first.step is None else context.first.step.loss
    if loss is None or math.isfinite(loss):
        return None
    return _word(loss)


def _word(loss: float) -> str:
    return "NaN" if math.isnan(loss) else "infinite"


def _broken_parameters(context: RuleContext) -> tuple[int, ...]:
    return tuple(
        stat.parameter
        for stat in context.first.parameter_stats.values()
        if stat.gradient is not None and stat.gradient.is_broken
    )
