"""GS728: losses that fall below zero faster and faster."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from gradscope.analysis.losses import WeightedLosses, stepped, weighted_losses
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import BackwardEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.source_text import loss_line
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_PARTS = 5
"""Number of equal parts of a run whose mean losses are compared."""
_ANYWAY = 1_000_000.0
"""Multiple of its size at the start at which a loss is without bound, whatever its course."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnboundedLoss(Rule):
    """The loss falls below zero, faster and faster.

    What it finds:
        A training run whose loss has no lower bound, and that steps down without end.

    Why it matters:
        Some term of the loss has the wrong sign, or is maximised without anything that holds it.
        The curve looks like progress, while the weights grow until they overflow.

    How it is measured:
        The mean losses of five equal parts of the run fall each by more than the one before, and
        the last is below zero. Its size is that of the first steps, or 1 if they are smaller, times
        `warning` or `error`. From 1,000,000 times on the course does not matter. At least `steps`
        steps of one optimizer are needed. Runs in which several optimizers step, as of a GAN, are
        not judged: their losses may hold each other.

    How to fix it:
        Look at each term that is subtracted, or that is negative: it must have a bound, as an
        accuracy or an entropy has. A divergence, a distance or an exponential must be added.

    When it may be wrong:
        The density of data that lie on a point or a line, which grows as a model comes close.

    Source:
        Kingma and Welling 2014, "Auto-Encoding Variational Bayes" (arXiv 1312.6114), appendix B:
        the divergence of a Gaussian.
        Measured: in 480 healthy trainings of 20 steps and more, the loss falls below zero by 4.8
        times its size at the start at most; with a wrong sign in four others, by 35, 450, 670 and
        1,700,000 times.
    """

    code: ClassVar[str] = "GS728"
    name: ClassVar[str] = "unbounded-loss"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="times"),)
    explains: ClassVar[tuple[str, ...]] = ("GS101", "GS107", "GS108", "GS113", "GS116")

    warning: float = 100.0
    """Size of the loss at the end, as a multiple of that at the start. Measured."""
    error: float = 1_000.0
    """Multiple as above. Chosen: no likelihood of real data grows as much."""
    steps: int = 20
    """Number of optimizer steps below which nothing is judged. Chosen: four for each part."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if len({window.optimizer for window in stepped(context.recording)}) > 1:
            return "several optimizers step: their losses may hold each other in balance"
        if weighted_losses(context.recording).steps < self.steps:
            return f"fewer than {self.steps} steps have a finite loss"
        return None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the loss falls below zero, faster and faster."""
        losses, made = weighted_losses(context.recording), stepped(context.recording)
        parts = _means(losses)
        start = losses.mean(last=max(losses.steps // 20, 1))
        times = -parts[-1] / max(abs(start), 1.0)
        backward = next(only(BackwardEvent, made[-1].events)).site
        context.measured(
            self.code, "times", times, self.warning, fires="above", site=backward, step=0
        )
        falls = [before - after for before, after in pairwise(parts)]
        # A bounded loss falls more slowly as it comes near its bound.
        is_faster = falls[0] > 0 and all(later > former for former, later in pairwise(falls))
        if times < self.warning or not (is_faster or times >= _ANYWAY):
            return
        line = loss_line(context)
        yield self.finding(
            context,
            message=(
                f"the loss falls without bound{', faster and faster' * is_faster}: from "
                f"{short(start, 3)} to {short(parts[-1], 3)} in the last fifth of "
                f"{counted(losses.steps, 'step')}"
            ),
            remedy=(
                "look for a term with the wrong sign: what is subtracted must have a bound, and a "
                "divergence, a distance or an exponential must be added"
            ),
            site=backward if line is None else line,
            related=() if line is None else (context.related(backward, "this backward"),),
            severity="error" if times >= self.error else "warning",
            evidence={
                "times": times,
                "limit": self.warning,
                "first_loss": start,
                "last_loss": parts[-1],
                "steps": losses.steps,
            },
            step=made[-1].step.index,
        )


def _means(losses: WeightedLosses) -> list[float]:
    """Return the mean loss of each fifth of the run."""
    part = losses.steps / _PARTS
    return [losses.mean(part * number, part * (number + 1)) for number in range(_PARTS)]
