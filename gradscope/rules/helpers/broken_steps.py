"""The step of a run whose loss or gradients are the first that are no numbers, and stay so.

The events of a run tell it, also where no backward was watched closely: of compiled models, say.
"""

import math
from dataclasses import dataclass

from gradscope.analysis.windows import Series, Window, Windows
from gradscope.recording.events import BackwardEvent
from gradscope.recording.finding import RelatedLocation
from gradscope.rules.context import RuleContext


@dataclass(frozen=True, slots=True)
class BrokenStep:
    """The first step of an optimizer that took in NaN or infinity, and gave it to the weights."""

    context: RuleContext
    series: Series
    window: Window
    count: int
    """Number of the optimizer's steps that are broken."""

    @property
    def step(self) -> int:
        """Its number in the run."""
        return self.window.step.step

    @property
    def backward(self) -> BackwardEvent:
        """The pass whose loss is no number, the last one where each is."""
        passes = self.window.passes
        return next((one for one in passes if not math.isfinite(_loss(one))), passes[-1])

    @property
    def loss(self) -> float:
        """Loss of the first non-finite pass, otherwise of the last pass."""
        return _loss(self.backward)

    @property
    def related(self) -> RelatedLocation | None:
        """The line of the step."""
        return self.context.related(
            self.window.step.site, "the step that applies it to the weights"
        )

    @property
    def followers(self) -> str:
        """How many steps are like it, for the end of a message."""
        return f", as in {self.count} of {len(self.series.windows)} steps" * (self.count > 1)

    @property
    def remedy(self) -> str:
        """What to do to see more."""
        recording = self.context.recording
        # Of a script that moves its weights itself no single step is looked at.
        if not recording.captured_steps or self.series.record is None:
            return "check the batch, the weights and the loss computation with torch.isfinite"
        is_watched = recording.command == "watch"
        how = "tensor_every=1" if is_watched else f"--tensors-at {self.step}"
        return f"run it again with {how}to find the operation that breaks"

    @property
    def parameters(self) -> tuple[int, ...]:
        """Trained parameters of the series, or of the model if the series has none."""
        trained = (one.index for one in self.context.recording.parameters if one.requires_grad)
        return self.series.parameters or tuple(trained)


def broken_steps(context: RuleContext) -> tuple[BrokenStep, ...]:
    """Return the first such step of each optimizer whose last step is one too."""
    found = []
    for series in context.shared(Windows).series:
        # An optimizer may leave out such a step by itself: then weights and loss are numbers again.
        measured = [one for one in series.windows if one.step.knows_nonfinite]
        broken = [one for one in measured if one.step.nonfinite and one.passes]
        if broken and broken[-1] is measured[-1]:
            found.append(BrokenStep(context, series, broken[0], len(broken)))
    return tuple(found)


def _loss(event: BackwardEvent) -> float:
    loss = event.loss
    return 0.0 if loss is None else loss
