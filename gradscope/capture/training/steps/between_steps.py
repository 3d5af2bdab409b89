"""What happens to parameters between the steps of an optimizer."""

from types import FrameType

from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.gradient_hooks import GradientHooks
from gradscope.capture.training.steps.module_flags import ModuleFlags
from gradscope.capture.training.steps.replaced_weights import ReplacedWeights

_EVERY = 10
"""Steps between two counts of hooks: each takes a microsecond per fifteen parameters."""


class BetweenSteps:
    """Watches weights that are replaced, and hooks that are registered again.

    Its calls run in every step, so each compares a few bytes.
    """

    def __init__(self, training: TrainingState) -> None:
        self._guard, self._targets = training.guard, training.still_targets
        self.weights, self._hooks = ReplacedWeights(training), GradientHooks(training)
        self._flags = ModuleFlags(training)
        self._until = 1
        """Number of steps until hooks are counted."""

    def before_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Look at an optimizer's parameters before its step."""
        self._until -= 1
        self._targets.steps += 1
        if not self._until:
            self._until = _EVERY
            if not is_traced():
                self._guard.run(self._look_closer, optimizer)
        self.weights.before_step(optimizer, frame)

    def _look_closer(self, optimizer: Optimizer) -> None:
        self._hooks.count(optimizer)
        self.weights.settle()
        self._targets.look()
        self._flags.look()

    def finish(self) -> None:
        """Record what was seen."""
        self.weights.finish()
        self._targets.finish()
        self._hooks.finish()
        self._flags.finish()
