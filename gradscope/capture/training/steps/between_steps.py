"""What happens to parameters between the steps of an optimizer."""

from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.gradient_hooks import GradientHooks
from gradscope.capture.training.steps.replaced_weights import ReplacedWeights


class BetweenSteps:
    """Watches weights that are replaced, and hooks that are registered again."""

    def __init__(self, training: TrainingState) -> None:
        self._watches = (ReplacedWeights(training), GradientHooks(training))

    def start(self) -> None:
        """Start watching."""
        for one in self._watches:
            one.start()

    def finish(self) -> None:
        """Record what was seen."""
        for one in self._watches:
            one.finish()

    def stop(self) -> None:
        """Stop watching."""
        for one in self._watches:
            one.stop()
