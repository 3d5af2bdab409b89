"""Evidence on a training: optimizers, clips, rounded updates, cost, and the code around lines."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from gradscope.frozen import dataclass
from gradscope.recording.records import Shape

OptimizerFamily = Literal["sgd", "adaptive", "other"]
"""`adaptive`: divides by the root of a mean of squared gradients, as Adam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A parameter group; numbers are None if it has none of that name."""

    parameters: tuple[int, ...]
    """Parameters of the model, each once."""
    duplicates: tuple[int, ...]
    """Parameters that it lists more than once."""
    learning_rate: float | None
    initial_learning_rate: float | None
    """Start value of a scheduler; None without a scheduler."""
    epsilon: float | None
    momentum: float | None
    weight_decay: float | None
    betas: tuple[float, float] | None = None
    """Adam's shares of the old mean and of the old mean square, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleTensor:
    """A tensor in an optimizer that was meant for the model but is not in it."""

    shape: Shape
    name: str | None
    """Former name in the model."""
    successor: int | None
    """Parameter that replaced it."""
    replaced: int | None
    """Line (a site) that replaced it; None if that was not observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecord:
    """An optimizer: the target's, or another one constructed while the target was loaded."""

    table: ClassVar[str] = "optimizer"
    index: int
    class_name: str
    family: OptimizerFamily
    is_torchs: bool
    """Whether its class is one of torch's own."""
    is_targets: bool
    """Whether it makes the target's steps."""
    site: int | None
    """Line that made it."""
    groups: tuple[GroupRecord, ...]
    later: tuple[int, ...]
    """Parameters that were made after it."""
    stale: tuple[StaleTensor, ...]
    maximises: bool = False
    """Whether a group makes its steps enlarge the loss."""
    given: int | None = None
    """Line that chose its parameters, where it passed them to the function that made it."""

    @property
    def parameters(self) -> frozenset[int]:
        """Parameters of the model that it holds."""
        return frozenset(index for group in self.groups for index in group.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitRecord:
    """A training on one batch, undone afterwards."""

    table: ClassVar[str] = "overfit"
    wanted: int
    """Largest number of steps."""
    optimizer: str
    """The optimizer and its learning rate, as `AdamW(lr=0.001)`."""
    learned: float
    """Share of the first loss at which the batch counts as learned."""
    losses: tuple[float, ...]
    """Loss before each step, and after the last."""
    moved: tuple[float | None, ...]
    """Distance that each parameter moved over the norm it had. None if it requires no grad or
    cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOptimizer:
    """An optimizer that a script made, or whose step it called.

    `optimizer` of events is the index of such a record.
    """

    table: ClassVar[str] = "trained_optimizer"
    class_name: str
    family: OptimizerFamily
    name: str
    """Variable that holds it, as `optimizer` or `self.opt`; its class if none was found."""
    site: int | None
    """Line that made it; None if it was made before recording started."""
    parameters: tuple[int, ...]
    """Parameters of its groups at its last recorded step."""
    replaced: int | None
    """Index of the last earlier optimizer with one of its parameters."""
    joined: int | None = None
    """Index of the optimizer whose steps include its own: a wrapper, or one that steps in the same
    backward. None if it steps by itself."""
    rested: int | None = None
    """Line of the script's function of the step that set its learning rate to 0; None without one.
    """
    base_rate: float | None = None
    """Learning rate of its first group that a `LambdaLR` multiplies; None without one."""
    rate_function: int | None = None
    """Line of the script's function that gives the factor."""
    planned_steps: int | None = None
    """Number of steps that its learning-rate scheduler is planned for; None without such a number.
    """
    plateau_site: int | None = None
    """Line that made its `ReduceLROnPlateau`; None without one."""
    schedule_site: int | None = None
    """Line that made its learning-rate scheduler; None if it was made before recording started."""
    undecayed: tuple[int, ...] = ()
    """Parameters without weight decay, if other groups have one."""
    name_filters: tuple[tuple[str, int], ...] = ()
    """Words, each with the line of its list, by which the script may have formed these groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedUpdate:
    """The effect of an optimizer's step on one parameter, counted in elements."""

    table: ClassVar[str] = "rounded_update"
    step: int
    optimizer: int
    """Index of its `TrainedOptimizer` record."""
    parameter: int
    moving: int
    """Elements whose gradient was finite and not zero."""
    unchanged: int
    """Elements among these that the step left unchanged, bit for bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCost:
    """The cost of recording a run; a killed process leaves no such record."""

    table: ClassVar[str] = "watch_cost"
    budget: float | None
    """Maximum share of the training's own time; None for no limit."""
    share: float | None
    """Share of the training's own time, first steps included; None if only one step was made."""
    seconds: float
    """Seconds spent."""
    steps: int
    """Number of steps."""
    measured: int
    """Number of steps with measured gradients."""
    captured: int
    """Number of steps captured in detail."""
    repeated: int
    """Number of steps recorded only as repetitions of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuedRun:
    """A training was resumed from a checkpoint. Its recording continues that of the part before."""

    table: ClassVar[str] = "continued_run"
    step: int
    """Number of optimizer steps made before, as the trainer counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """A line of an installed package, as of a trainer, and the user's line that led to it."""

    table: ClassVar[str] = "library_call"
    site: int
    caller: int


ArgumentKind = Literal["accumulation", "learning rate", "precision"]
"""What an argument of a trainer sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerArgument:
    """The user's argument that sets how a trainer trains, as `Trainer(precision="bf16-mixed")`."""

    table: ClassVar[str] = "trainer_argument"
    kind: ArgumentKind
    site: int


WriteWay = Literal["early", "late"]
"""When a loop writes gradients: before backward computes them, or after the step has used them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MisplacedWriteRecord:
    """A statement of a training loop that scales or clamps gradients by hand, in vain."""

    table: ClassVar[str] = "misplaced_write"
    site: int
    backward: int
    """Line (a site) of the loop's backward."""
    way: WriteWay


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipScope:
    """A set of parameters that a script clips together.

    `scope` of a clip's event is the index of the set.
    """

    table: ClassVar[str] = "clip_scope"
    parameters: tuple[int, ...]
    """Ascending."""


ClipMethod = Literal["norm", "value", "per-tensor", "adaptive"]
"""How gradients are clipped: `norm`: all by one factor, to a maximum global norm; `value`: each
element; `per-tensor`: each parameter by its own norm; `adaptive`: each unit by the norm of its
weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipTrial:
    """The settings of a clipping report."""

    table: ClassVar[str] = "clip_trial"
    max_norm: float | None
    """Maximum norm, if one was requested."""
    norm_type: float
    value: float
    """Maximum element in clipping by value."""
    adaptive_ratio: float
    """Maximum ratio of gradient to weight norm of a unit in adaptive clipping."""
    asked: tuple[ClipMethod, ...]
    """Methods that were requested; limits of the others may be chosen automatically."""
    applied: ClipMethod | None
    """Method applied to the optimizer's steps; None for no clipping."""
    steps: int
    """Number of requested optimizer steps."""
    batches: int
    """Number of batches to measure after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedGradient:
    """Effect of one method on the gradients of one backward, by parameter."""

    norms: tuple[float | None, ...]
    """Euclidean norms after clipping; None without a gradient."""
    products: tuple[float | None, ...]
    """Inner products with the unclipped gradient."""
    cut: int
    """Number of elements or units that were clipped."""
    of: int
    """Number of all elements or units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPass:
    """The unclipped gradients of one backward."""

    table: ClassVar[str] = "clip_pass"
    columns: ClassVar[Mapping[str, str]] = {"failure": "obstacle"}
    made: int
    """Number of optimizer steps before it."""
    batch: int
    """Index of its batch."""
    loss: float | None
    norms: tuple[float | None, ...]
    """By parameter: Euclidean norm of its gradient; None without one."""
    powers: tuple[float | None, ...]
    """By parameter: gradient norm of the requested type; empty if that is Euclidean."""
    torchs_norm: float | None
    """Result of `torch.nn.utils.get_total_norm`, which computes in the gradients' own precision;
    None if it fails."""
    failure: str
    """Why it fails; otherwise empty."""
    by_value: ClippedGradient
    adaptive: ClippedGradient


EndingKind = Literal["returned", "exited", "raised", "interrupted", "stopped", "limited", "lost"]
"""`returned`: at the script's last line; `exited`: by `sys.exit`; `raised`: by an uncaught
exception; `interrupted`: by Ctrl-C; `stopped`: requested by an option of gradscope. The script
continued after these: `limited`: the requested number of steps was recorded; `lost`: gradscope
could not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """Why recording ended; a killed process leaves no such record."""

    table: ClassVar[str] = "run_ending"
    kind: EndingKind
    code: int | None = None
    """Exit code of the script."""
    exception: str = ""
    """Class of the exception."""
    message: str = ""
    """First line of the exception's message, or the option or the reason."""
    file: str = ""
    """File where it was raised, preferably not installed code; empty if unknown."""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """Consecutive lines of a file."""

    table: ClassVar[str] = "source"
    file: str
    """Path, as in the recording's sites."""
    first: int
    """Number of the first line, counted from 1."""
    lines: tuple[str, ...]
    """Lines without line breaks and trailing spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRecord:
    """A statement on several lines; for a compound statement, only its header."""

    table: ClassVar[str] = "statement"
    file: str
    """Path, as in the recording's sites."""
    first: int
    """Number of its first line, counted from 1."""
    last: int
    text: str
    """Source text, with line breaks."""
