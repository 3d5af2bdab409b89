"""What the rest of a training run tells of one of its backward passes."""

from dataclasses import dataclass

from gradscope.recording.records import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBefore:
    """A step of an optimizer that was made before a backward."""

    step: int
    """Of the run."""
    site: Site | None
    rate: float | None
    """The learning rate."""
    parameters: frozenset[str]
    """Names of those that it has written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the rest of a run tells of one backward; parameters by their places in its look.

    What one backward shows is not what the run does: losses take turns, and so do optimizers.
    """

    held: frozenset[int]
    """Parameters that an optimizer holds at any time."""
    stepped: frozenset[int]
    """Those that the steps after this backward are for; all where the script moves them itself."""
    learning: frozenset[int]
    """Those that get a gradient other than zero at any time."""
    alive: frozenset[int]
    """Those that get one in this step or in a later one."""
    moved: frozenset[int]
    """Those whose norm is another at another time."""
    losses: tuple[float, ...]
    """From the same line, this backward's first, and then those of the steps after it."""
    highest_rate: float | None
    """The largest learning rate with which the optimizer of these steps ever steps."""
    is_stepped: bool
    """Whether an optimizer steps after this backward, and no scaler leaves that out."""
    steps_before: tuple[StepBefore, ...] = ()
    """Of each optimizer: its last step before this backward."""
    is_scale_sought: bool = False
    """Whether a gradient scaler leaves its steps out, and may yet find a scale that is not too
    large."""
    goes_on: bool
    """Whether optimizers step later, with finite gradients."""

    seeks_derivative: bool
    """Whether nothing is trained, and what is no parameter gets a gradient too, as an input."""

    @property
    def is_left_out(self) -> bool:
        """Whether the script uses no gradient of this backward and goes on, as a scaler does."""
        return self.goes_on and not self.is_stepped
