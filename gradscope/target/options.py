"""The user's options for loading and running a target, besides the target itself."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from gradscope.recording.stored_gradient import KeepMode

Mode = Literal["train", "eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Options that override what the target's file offers.

    All are text as on the command line, which can then build them without torch.
    """

    model: str | None = None
    """EXPR in the file: a name, or a call with literal arguments."""
    batch: str | None = None
    """EXPR in the file, or the path of a batch file."""
    loss: str | None = None
    """EXPR in the file, or one of the named losses."""
    inputs: tuple[str, ...] = ()
    """`[name=][dtype[lo,hi]:]d0,d1,...`, one per input."""
    grad_output: str | None = None
    """`ones`, `randn`, or the path of a file with one tensor."""
    device: str = "cpu"
    mode: Mode = "train"
    seed: int | None = 0
    dtype: str | None = None
    """Dtype of the parameters and of all floating-point inputs; None for no conversion."""
    checkpoint: str | None = None
    """File of weights for the model."""
    args: tuple[str, ...] = ()
    """The file's `sys.argv[1:]`."""
    eager: bool = False
    """Whether `torch.compile` is disabled during the forward."""
    allow_synthetic_loss: bool = True
    """Whether to use a placeholder loss if the target has none; `gradscope check` does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipOptions:
    """Clipping methods to measure."""

    max_norm: float | None = None
    """Maximum norm; None for the target's own, if it has one and nothing else is requested."""
    finds_norm: bool = False
    """Whether to search for a norm, whatever the target says."""
    norm_type: float = 2.0
    value: float | None = None
    """Maximum magnitude of an element; None to derive one from the first batch."""
    per_tensor: bool = False
    """Whether the maximum norm applies to each parameter separately."""
    adaptive_ratio: float | None = None
    """Maximum ratio of gradient to weight norm of a unit; None for the usual one."""
    batches: int = 1
    """Number of batches to measure with the weights after the optimizer steps."""

    def with_own_norm(self, max_norm: float | None) -> Self:
        """Return the options with the limit of the target, if it is to be used."""
        others = (self.max_norm, self.value, self.adaptive_ratio)
        if self.finds_norm or any(other is not None for other in others):
            return self
        return replace(self, max_norm=max_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a target is run before it is judged."""

    steps: int = 0
    """Number of optimizer steps before the judged one."""
    optimizer: str | None = None
    """Class name in `torch.optim`, in any case. It replaces the target's optimizer."""
    lr: float | None = None
    """Learning rate of that optimizer, or of the target's own."""
    probe_steps: int = 3
    """Number of optimizer steps tried on a snapshot after the judged one."""
    micro_batches: int | None = None
    """Number of parts into which the judged step's batch is split, to compare the accumulated
    gradients."""
    clipping: ClipOptions | None = None
    """Clipping methods whose effect is measured; None for none."""
    keep_gradients: KeepMode = "none"
    """How the judged step's gradients are stored in the recording."""
