"""Where a recording comes from: the environment, and the target."""

from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of the recording."""

    python: str
    torch: str
    platform: str
    device: str
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """The inspected target."""

    name: str
    """Name as the user wrote it, or the model's class."""
    model: str
    """Class name of the model."""
    batch: str
    """Shapes of the batch, as `float32[8, 10], int64[8]`."""
    loss: str
    """Origin of the loss, as `loss_fn(output, target)`."""
    optimizer: str | None
    mode: str
    """`train` or `eval`."""
    seed: int | None
    synthetic_loss: bool
    """Whether gradscope guessed the loss, because the target has none."""
    guessed: tuple[str, ...] = ()
    """What else gradscope guessed: `arguments` of the model's class, `batch`."""
    root: str
    """Working directory; paths are shown relative to it."""
    repository: str
    """Absolute path of the repository that contains the working directory."""

    @property
    def guesses(self) -> tuple[str, ...]:
        """What gradscope guessed, the loss included."""
        return (*self.guessed, *(("loss",) if self.synthetic_loss else ()))
