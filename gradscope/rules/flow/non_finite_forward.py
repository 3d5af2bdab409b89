"""GS104: numbers of the forward that are not finite, and matter."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.rules.case import Case
from gradscope.rules.flow.broken_steps import broken_steps
from gradscope.rules.flow.forward_origins import ForwardOrigin, forward_origins
from gradscope.rules.flow.late_lines import certainty, line_evidence, other_places
from gradscope.rules.flow.upstream import line_of
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteForward(Rule):
    """NaN or infinity made in the forward, which the loss becomes too.

    What it finds:
        The first operation of the forward that makes NaN or infinity of finite numbers, where that
        reaches the loss; or the parameter, buffer or batch that holds such numbers from the start.
        Where the loss stays finite and only gradients break on such numbers, it is GS103's finding.

    Why it matters:
        A loss of NaN teaches nothing, and its gradients turn every weight into NaN with one step.

    How it is measured:
        If the loss is not finite, the forward is run again from the same random state, and the
        operands of every operation are compared with what it returns. An infinity
        written on purpose, as the -inf of a mask that softmax turns into zero, is none of these.
        NaN that was made of an earlier infinity is told with the operation that made the infinity.
        In a training run, a step that was not captured is read at the entry of backward: the graph
        still holds what its operations have saved. Its lines are those of the same operations in
        the last captured step, and the message says so. Where the graph tells nothing, steps count
        whose loss and gradients are not finite, and stay so to the last step.

    How to fix it:
        Write the function in its stable form: log_softmax for the log of a softmax, losses with
        logits, a small number in a denominator or under a root. Leave each row of a masked
        attention at least one position. In float16 keep sums and powers in float32.

    When it may be wrong:
        A model that draws random numbers outside of torch, random and numpy may not repeat its
        forward. Inside compiled code nothing is seen: only the loss itself is judged there.

    Source:
        Measured: with this search in the forward and GS103 in the backward, nine of nine models
        whose parameters got NaN or infinity were located; `torch.autograd.detect_anomaly` blamed
        another operation for three of them, as the multiplication after a fully masked softmax.
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

    def check(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for every origin of a loss that is not finite."""
        if case.run is not None and case.run.is_left_out:
            return
        loss = loss_word(case)
        lost = [one for one in case.shared(forward_origins) if one.seen.reaches_loss]
        for origin in lost:
            yield self._finding(case, origin, loss or "not finite")
        if loss and not lost:
            yield self._unlocated(case, loss)

    def in_run(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for a loss that is no number from a step on."""
        for broken in broken_steps(case):
            if math.isfinite(broken.loss):
                continue
            yield self.finding(
                case,
                message=f"the loss of step {broken.step} is {_word(broken.loss)}, and its "
                f"gradients break the weights{broken.followers}",
                remedy=broken.remedy,
                site=broken.backward.site,
                related=(broken.related,),
                parameters=broken.parameters,
                evidence={"loss": _word(broken.loss)},
                count=broken.count,
                step=broken.step,
            )

    def _finding(self, case: Case, origin: ForwardOrigin, loss: str) -> Finding:
        return self.finding(
            case,
            message=f"{origin.made}; the loss is {loss}{certainty(case, origin.node)}",
            remedy=origin.cause.remedy,
            site=origin.place(case),
            related=(origin.taken_in(case), *other_places(case, origin.site)),
            parameters=_broken_parameters(case),
            modules=origin.modules(case),
            evidence={**origin.evidence, **line_evidence(case, origin.node)},
            caused_by=("GS101",) if origin.cause.by_growth else (),
            explains=("GS104",) if case.run is not None else (),  # of later steps
        )

    def _unlocated(self, case: Case, loss: str) -> Finding:
        reason = case.examination_obstacle("non-finite")
        why = f" ({reason})" if reason else ""
        return self.finding(
            case,
            message=f"the loss is {loss}, and the operation that made it was not seen{why}",
            remedy="check the batch, the weights and what comes before the loss by torch.isfinite",
            site=line_of(case, case.first.nodes[0]) if case.first.nodes else None,
            parameters=_broken_parameters(case),
            evidence={"loss": loss},
        )


def loss_word(case: Case) -> str | None:
    """Return how a loss that is not finite is written, None for another one."""
    loss = None if case.first.step is None else case.first.step.loss
    if loss is None or math.isfinite(loss):
        return None
    return _word(loss)


def _word(loss: float) -> str:
    return "NaN" if math.isnan(loss) else "infinite"


def _broken_parameters(case: Case) -> tuple[int, ...]:
    return tuple(
        stat.parameter
        for stat in case.first.parameter_stats.values()
        if stat.gradient is not None and stat.gradient.is_broken
    )
