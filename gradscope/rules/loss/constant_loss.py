"""GS710: losses that are the same number in every step, although they have a gradient."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.loop_windows import LoopWindow
from gradscope.analysis.losses import (
    WeightedLosses,
    losses_of_steps,
    stepped,
    weighted_losses,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import BackwardEvent, StepEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.source_text import loss_line
from gradscope.rules.rule import Rule

_LEAST = 20
"""Number of steps below which nothing is judged."""
_EQUAL = 1e-6
"""Largest difference of two losses, as a share of them, that is rounding."""
_DIFFERENT = 0.01
"""Smallest difference of two gradient norms, as a share of the larger, that batches make."""
_ROUNDING = 1e-6
"""Largest gradient norm, as a multiple of a loss of ln 2, that is rounding. Measured: 3e-8 where
both sides carry a gradient, and 0.1 or more where only one does.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantLoss(Rule):
    """The loss is the same number in every step, although its gradient is not.

    What it finds:
        A loss that compares a model with itself: the reference model of a preference loss, or the
        old policy of a ratio, is the trained model and not a copy of it. What the loss is made of
        is then the same in every step, and only the gradient differs.

    Why it matters:
        The gradient is that of a loss at its starting point for ever: it never gets smaller where
        the model is right already, and nothing holds the model near its reference. If both sides
        carry a gradient, the two cancel, and the model learns nothing.

    How it is measured:
        The losses of all steps of the only optimizer, or of the last one if it steps after all
        others, 20 at least, are above zero and equal up to rounding, and the norms of the gradients
        are not zero and differ by more than 1 %. It is a warning where the loss is ln 2, the
        logistic loss of a difference of zero, and a note where it is another number and a step was
        captured. It is an error where the loss is ln 2 and all norms are below a millionth of it:
        only rounding is left of the gradient.

    How to fix it:
        Make the reference a frozen copy: `copy.deepcopy(model).requires_grad_(False)`.

    When it may be wrong:
        If the loss is a surrogate whose value means nothing, as `x / x.detach()`.

    Source:
        Rafailov et al. 2023, "Direct Preference Optimization": the loss starts at ln 2, where model
        and reference are equal, and falls from there.
    """

    code: ClassVar[str] = "GS710"
    name: ClassVar[str] = "constant-loss"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS708",)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        losses = _losses(context)
        if losses is None:
            return "several optimizers step in turn"
        return f"fewer than {_LEAST} steps have a finite loss" if losses.steps < _LEAST else None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if no step changes the loss."""
        made, losses = _last_phase(context), _losses(context)
        if losses is None:
            return
        norms = _norms(made)
        lowest, highest = losses.lowest, losses.highest
        # A rate of 0 on one batch keeps the loss and the norm equal: other rules name it.
        if lowest <= 0 or highest - lowest > _EQUAL * highest or not _differ(norms):
            return
        start = next(only(BackwardEvent, made[-1].events))
        is_half = math.isclose(highest, math.log(2), rel_tol=_EQUAL)
        name = f"{short(highest, 4)}{' (ln 2)' if is_half else ''}"
        is_rounding = is_half and max(norms) < _ROUNDING * highest
        line = loss_line(context, made[0].step.index)
        if line is None and not is_half:
            return  # nothing shows that the loss compares anything
        yield self.finding(
            context,
            message=(
                f"the loss is {name} in each of {counted(losses.steps, 'step')}, although the "
                f"gradient norm goes from {short(min(norms))} to {short(max(norms))}: what it "
                f"compares is always equal{', and the gradient is rounding' if is_rounding else ''}"
            ),
            remedy=(
                "see whether a reference model is the trained model itself: it should be a frozen "
                "copy"
            ),
            site=start.site if line is None else line,
            related=(context.related(start.site if line is not None else None, "the backward"),),
            evidence={
                "loss": highest,
                "steps": losses.steps,
                "norm_lowest": min(norms),
                "norm_highest": max(norms),
            },
            severity="error" if is_rounding else "warning" if is_half else "note",
            step=made[-1].step.index,
        )


def _last_phase(context: RuleContext) -> tuple[LoopWindow, ...]:
    """Return the windows of the last optimizer; empty where others step between its steps."""
    made = stepped(context.recording)
    own = tuple(window for window in made if window.optimizer == made[-1].optimizer)
    return own if made[len(made) - len(own) :] == own else ()


def _losses(context: RuleContext) -> WeightedLosses | None:
    """Return the losses of the last phase; None where optimizers step in turn."""
    recording = context.recording
    made, whole = _last_phase(context), weighted_losses(recording)
    if len(made) == len(stepped(recording)):
        return whole
    known = losses_of_steps(recording)
    # Summaries stand for several steps each: they do not tell which of them belong to the last
    # optimizer.
    if not made or len(known) != len(whole.values):
        return None
    first = made[0].step.index
    values = [loss for step, loss in known if step >= first]
    return WeightedLosses(
        values=values,
        counts=[1.0] * len(values),
        lowest=min(values, default=math.inf),
        highest=max(values, default=-math.inf),
    )


def _norms(made: Sequence[LoopWindow]) -> list[float]:
    """Return the norms of the gradients that the steps use."""
    events = (event for window in made for event in only(StepEvent, window.events))
    return [event.norm for event in events if event.norm is not None]


def _differ(norms: Sequence[float]) -> bool:
    if len(norms) < 2 or not all(norm > 0 and math.isfinite(norm) for norm in norms):
        return False
    return max(norms) - min(norms) > _DIFFERENT * max(norms)
