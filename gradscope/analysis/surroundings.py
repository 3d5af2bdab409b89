"""Facts on the rest of a run around one backward."""

from gradscope.frozen import dataclass
from gradscope.recording.records import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBefore:
    """A step of an optimizer that was made before a backward."""

    step: int
    """Step of the run."""
    site: Site | None
    rate: float | None
    """Learning rate of the step."""
    parameters: frozenset[str]
    """Names of the parameters that it may have broken."""
    left_sound: frozenset[str] = frozenset()
    """Names of the parameters that were finite after it, and are broken now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts on the rest of a run for one backward; parameters are indices in its captured step.

    What one backward shows is not what the run does: losses take turns, and so do optimizers.
    """

    held: frozenset[int]
    """Parameters that an optimizer holds at any time."""
    stepped: frozenset[int]
    """Parameters that the steps after this backward update; all if the script updates them itself.
    """
    stepped_ever: frozenset[int] = frozenset()
    """Parameters that the steps after any captured backward from this line update."""
    stepped_alike: frozenset[int] = frozenset()
    """`stepped_ever` without backwards whose forward cuts its graph at other lines."""
    learning: frozenset[int]
    """Parameters that get a nonzero gradient at any time."""
    alive: frozenset[int]
    """Parameters that get a nonzero gradient in this step or a later one."""
    moved: frozenset[int]
    """Parameters whose norm changes during the run."""
    unmoved: frozenset[int] = frozenset()
    """Parameters whose norm is the same in several captured steps, from first to last."""
    followed: frozenset[int] = frozenset()
    """Parameters that move although they never get a gradient, such as a running mean of others."""
    ceased: frozenset[int] = frozenset()
    """Parameters that had gradients earlier, and get none from here to the end of the run, over
    several steps.
    """
    unfrozen: frozenset[int] = frozenset()
    """Parameters that did not require grad earlier in the run."""
    uncleared: int = 0
    """Number of gradients to which every later backward from the same line adds although no step
    has used them.
    """
    are_optimizers_alike: bool = False
    """Whether two optimizers, which different lines made, hold exactly the same parameters."""
    are_gradients_assigned: bool = False
    """Whether an optimizer steps with gradients that no backward has left there: the script has
    assigned them.
    """
    first_norms: tuple[float | None, ...] = ()
    """Norm of each parameter at the first captured backward; None if it is not known."""
    losses: tuple[float, ...]
    """Losses of the backwards from this line: this one, then those of later steps."""
    losses_before: tuple[float, ...]
    """Losses of the last backwards from this line before this one."""
    losses_of_line: tuple[float, ...] = ()
    """All losses of the backwards from this line, for one of the first of them; empty for others.
    """
    highest_rate: float | None
    """Largest learning rate of any step of the optimizer of these steps."""
    is_only_line: bool = True
    """Whether every backward of the run is of the same line, as that of micro-batches."""
    is_only_loss: bool = True
    """Whether no other backward of the run adds to the gradients of this one."""
    is_stepped: bool
    """Whether an optimizer steps after this backward, and no scaler skips the step."""
    steps_before: tuple[StepBefore, ...] = ()
    """Last step of each optimizer before this backward."""
    is_scale_sought: bool = False
    """Whether a gradient scaler skips the steps, and may still find a scale that is not too large.
    """
    goes_on: bool
    """Whether optimizers step later, with finite gradients."""

    seeks_derivative: bool
    """Whether nothing is trained, and a tensor other than a parameter gets a gradient, such as an
    input.
    """

    @property
    def is_left_out(self) -> bool:
        """Whether the script uses no gradient of this backward and goes on, as a scaler does."""
        return self.goes_on and not self.is_stepped
