"""The user's options for loading and running a target, besides the target itself."""

from dataclasses import replace
from typing import Annotated, Literal, Self

from gradscope.frozen import dataclass
from gradscope.options.declaration import Option
from gradscope.recording.stored_gradient import KeepMode
from gradscope.target import option_checks

Mode = Literal["train", "eval"]

_TARGET = "Target"
OVERFIT_STEPS = 200
"""Steps of `--overfit` without a number."""

_TRIAL = "Steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Options that override what the target's file offers.

    All are text as on the command line, which can then build them without torch.
    """

    model: Annotated[
        str | None,
        Option(
            metavar="EXPR",
            help="Expression that gives the model.",
            panel=_TARGET,
            check=option_checks.expression,
        ),
    ] = None
    batch: Annotated[
        str | None,
        Option(
            metavar="EXPR|FILE",
            help="Expression that gives the batch, a .pt, .npz, .safetensors or .json file, or "
            "a batch that a run stored, as train.gradscope:step=1200.",
            panel=_TARGET,
        ),
    ] = None
    loss: Annotated[
        str | None,
        Option(
            metavar="EXPR|NAME",
            help="Expression that gives the loss, or cross-entropy, mse, mean or sum-squares.",
            panel=_TARGET,
            check=option_checks.loss,
        ),
    ] = None
    inputs: Annotated[
        tuple[str, ...],
        Option(
            "--input",
            metavar="SPEC",
            help="Random input, [name=][dtype[low,high]:]sizes, such as 8,3,32,32 or "
            "ids=int64[0,100]:2,16. Repeat for several inputs.",
            panel=_TARGET,
            check=option_checks.inputs,
        ),
    ] = ()
    grad_output: Annotated[
        str | None,
        Option(
            metavar="ones|randn|FILE",
            help="Start backward from the output with this gradient instead of a loss.",
            panel=_TARGET,
        ),
    ] = None
    device: Annotated[
        str,
        Option(
            help="Device to run on.",
            panel=_TARGET,
            check=option_checks.device,
            shows_default=True,
        ),
    ] = "cpu"
    mode: Annotated[Mode, Option(help="Mode of the model.", panel=_TARGET, shows_default=True)] = (
        "train"
    )
    seed: Annotated[int | None, Option(help="Random seed.", panel=_TARGET, shows_default=True)] = 0
    """Random seed of the run; None leaves the random state as it is."""
    dtype: Annotated[
        str | None,
        Option(
            metavar="TYPE",
            help="Convert parameters and inputs to this dtype, such as float64 or bfloat16.",
            panel=_TARGET,
            check=option_checks.floating_type,
        ),
    ] = None
    checkpoint: Annotated[
        str | None, Option(metavar="FILE", help="Load weights from FILE.", panel=_TARGET)
    ] = None
    args: tuple[str, ...] = ()
    """The file's `sys.argv[1:]`."""
    eager: Annotated[
        bool,
        Option(
            "--eager/--no-eager",
            help="Disable torch.compile, or leave it enabled.",
            python="Run a compiled model eagerly, to see inside it.",
            panel=_TARGET,
        ),
    ] = False
    allow_guesses: bool = True
    """Whether to guess a missing batch, loss or constructor argument."""


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
        """Return the options with the limit of the target, unless another limit is requested."""
        others = (self.max_norm, self.value, self.adaptive_ratio)
        if self.finds_norm or any(other is not None for other in others):
            return self
        return replace(self, max_norm=max_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a target is run before it is judged."""

    steps: Annotated[
        int,
        Option(
            min=0,
            metavar="N",
            help="Run N optimizer steps on the target's batches before the inspected step.",
            python="Number of optimizer steps to make before the inspected one, with the optimizer "
            "or an assumed Adam. It shows problems that appear only after some training. A loader "
            "gives a new batch to each step; otherwise all steps use the one batch.",
            panel=_TRIAL,
        ),
    ] = 0
    optimizer: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="torch.optim optimizer to use instead of the target's, such as adamw.",
            panel=_TRIAL,
            check=option_checks.optimizer,
        ),
    ] = None
    lr: Annotated[
        float | None,
        Option(min=0.0, metavar="X", help="Learning rate for --optimizer.", panel=_TRIAL),
    ] = None
    """Learning rate of `optimizer`, or of the target's own optimizer without one."""
    probe_steps: Annotated[
        int,
        Option(
            min=0,
            metavar="N",
            help="Try N optimizer steps after the inspected step, then restore the model.",
            python="Number of optimizer steps to try on a snapshot. They tell lasting problems "
            "from those of the first step. 0 for none.",
            panel=_TRIAL,
            shows_default=True,
        ),
    ] = 3
    micro_batches: Annotated[
        int | None,
        Option(
            min=2,
            metavar="K",
            help="Split the batch into K parts, and compare the accumulated gradients with those "
            "of the whole batch.",
            python="Split the batch into this many parts, and compare their accumulated gradients "
            "with those of the whole batch. `print(report)` and its JSON show the result.",
            panel=_TRIAL,
        ),
    ] = None
    overfit: Annotated[
        int | None,
        Option(
            min=2,
            metavar="[N]",
            help=f"Train on the one batch for up to N steps (default: {OVERFIT_STEPS}), report "
            "whether the loss falls to a hundredth, and restore the model.",
            python="Train on the one batch for up to this many steps, and report whether the loss "
            "falls to a hundredth. The model is restored afterwards.",
            panel=_TRIAL,
        ),
    ] = None
    clipping: ClipOptions | None = None
    """Clipping methods whose effect is measured; None for none."""
    keep_gradients: Annotated[
        KeepMode,
        Option(
            help="With --save, store the gradients for gradscope compare: every element, or a "
            "sketch of 4,096 numbers per parameter.",
            python="Store the gradients in the recording that `report.save(path)` writes, for "
            "`gradscope compare`: `exact` for every element, or `sketch` for 4,096 numbers per "
            "large parameter.",
            panel="Output",
        ),
    ] = "none"
