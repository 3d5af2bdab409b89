"""What the user asked of loading and running a target, beside the target itself."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from gradscope.recording.stored_gradient import KeepMode

Mode = Literal["train", "eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Choices that win over what the target's file offers.

    Everything is text as on the command line, so that the command line needs no torch to build it.
    """

    model: str | None = None
    """EXPR in the file: a name, or a call with literal arguments."""
    batch: str | None = None
    """EXPR in the file, or the path of a batch file."""
    loss: str | None = None
    """EXPR in the file, or one of the named losses."""
    inputs: tuple[str, ...] = ()
    """`[name=][dtype[lo,hi]:]d0,d1,...`, one for each input."""
    grad_output: str | None = None
    """`ones`, `randn`, or the path of a file with one tensor."""
    device: str = "cpu"
    mode: Mode = "train"
    seed: int | None = 0
    dtype: str | None = None
    """Of the parameters and of every floating input; None leaves them as they are."""
    checkpoint: str | None = None
    """File of weights for the model."""
    args: tuple[str, ...] = ()
    """What the file sees as `sys.argv[1:]`."""
    eager: bool = False
    """Whether `torch.compile` is switched off during the forward."""
    allow_synthetic_loss: bool = True
    """Whether a loss may be made up where the target has none; a gate says no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipOptions:
    """What to clip gradients to, to see what that does to them."""

    max_norm: float | None = None
    """The largest norm; None for the target's own, where it names one and nothing else is asked
    for."""
    finds_norm: bool = False
    """Whether to find one, whatever the target says."""
    norm_type: float = 2.0
    value: float | None = None
    """The largest element; None to choose one by the first batch."""
    per_tensor: bool = False
    """Whether the largest norm holds for each parameter by itself."""
    adaptive_ratio: float | None = None
    """The largest ratio of gradient to weight norm of a unit; None for the usual one."""
    batches: int = 1
    """Batches to measure with the weights that the optimizer steps have led to."""

    def with_own_norm(self, max_norm: float | None) -> Self:
        """Return the options with the limit that a target names, where it is to be taken."""
        others = (self.max_norm, self.value, self.adaptive_ratio)
        if self.finds_norm or any(other is not None for other in others):
            return self
        return replace(self, max_norm=max_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a target is run before it is judged."""

    steps: int = 0
    """Optimizer steps that are made before the judged one."""
    optimizer: str | None = None
    """Name of a class in `torch.optim`, in any case: makes the steps in place of the target's."""
    lr: float | None = None
    """Learning rate of that optimizer, or of the target's own."""
    probe_steps: int = 3
    """Optimizer steps tried on a snapshot after the judged one."""
    micro_batches: int | None = None
    """Into so many parts the judged step's batch is divided, to see what accumulating their
    gradients gives."""
    clipping: ClipOptions | None = None
    """What clipping does to the gradients is measured; None for not."""
    keep_gradients: KeepMode = "none"
    """How the judged step's gradients are kept in the recording."""
