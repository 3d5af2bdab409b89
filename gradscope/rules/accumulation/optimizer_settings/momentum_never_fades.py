"""GS332: averages of gradients that an optimizer keeps too long."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short
from gradscope.recording.evidence.training import GroupRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumNeverFades(Rule):
    """A momentum keeps old gradients longer than the optimizer can bear.

    What it finds:
        `SGD(…, momentum=1.0)` or `momentum=9`, where 0.9 was meant, and
        `Adam(…, betas=(0.999, 0.9))` with its two betas swapped.

    Why it matters:
        With a momentum of 1 each gradient is added to all later steps: the weights swing for ever,
        and do not settle at a minimum. With more than 1 the steps grow without bound. Adam divides
        an average of gradients by the root of an average of squares. If the first is much older
        than the second, a few small gradients make the divisor small while the average is still
        large, and the step overshoots.

    How it is measured:
        The momentum of the groups of SGD: 1 or more is an error. The two betas of Adam and its
        relatives: a first beta whose square is above the second is a warning.

    How to fix it:
        Use a momentum of 0.9, and betas of (0.9, 0.999) or (0.9, 0.95).

    When it may be wrong:
        If an undamped momentum is the subject of an experiment.

    Source:
        Reddi et al. 2018, "On the Convergence of Adam and Beyond" (arXiv 1904.09237), whose
        condition is that of Kingma and Ba 2015: the first beta is below the root of the second.
        Polyak 1964 for momentum, which converges only below 1.
    """

    code: ClassVar[str] = "GS332"
    name: ClassVar[str] = "momentum-never-fades"
    level: ClassVar[Severity] = "error"

    highest: float = 1.0
    """Momentum of SGD from which on it is found; and largest square of Adam's first beta over the
    second. Source: the conditions of convergence, as above.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return Optimizers(context).skip_reason()

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer with such a group."""
        for optimizer in Optimizers(context).with_parameters:
            judged = [(_kept(group, optimizer.family), group) for group in optimizer.groups]
            kept, group = max(judged, key=lambda one: one[0])
            is_sgd = optimizer.family == "sgd"
            context.measured(
                self.code,
                "momentum" if is_sgd else "squared_first_beta_over_second",
                kept,
                self.highest,
                subject=optimizer.class_name,
            )
            if kept < self.highest or (kept == self.highest and not is_sgd):
                continue
            message, remedy = _of_sgd(group) if is_sgd else _of_adam(group)
            yield self.finding(
                context,
                message=f"{optimizer.class_name} {message}",
                remedy=remedy,
                site=optimizer.site,
                severity="error" if is_sgd else "warning",
                parameters=group.parameters,
                evidence={"kept": kept, "limit": self.highest, "momentum": group.momentum},
            )


def _kept(group: GroupRecord, family: str) -> float:
    """Return what must stay below 1 for old gradients to fade in time."""
    if family == "sgd":
        return group.momentum or 0.0
    if family != "adaptive" or group.betas is None or not group.betas[1]:
        return 0.0
    return group.betas[0] ** 2 / group.betas[1]


def _of_sgd(group: GroupRecord) -> tuple[str, str]:
    momentum = group.momentum or 0.0
    grows = (
        f"multiplies its velocity by {literal(momentum)} in each step, which grows without bound"
        if momentum > 1
        else "has a momentum of 1: no gradient ever fades from its velocity"
    )
    return grows, "use a momentum below 1: 0.9 is usual"


def _of_adam(group: GroupRecord) -> tuple[str, str]:
    first, second = group.betas or (0.0, 0.0)
    steps = [short(1 / (1 - beta), 2) if beta < 1 else "all" for beta in (first, second)]
    message = (
        f"averages gradients over {steps[0]} steps, but their squares over {steps[1]}: "
        f"betas=({literal(first)}, {literal(second)}) are the wrong way round"
    )
    swapped = f"({literal(second)}, {literal(first)})"
    return message, f"pass betas={swapped}: the first beta belongs to the gradient"
