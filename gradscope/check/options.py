"""What a check can be told, beside how to load the target and which rules judge."""

from dataclasses import dataclass, field
from pathlib import Path

from gradscope.recording.finding import Severity
from gradscope.target.options import TargetOptions, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What makes a check fail."""

    fail_level: Severity = "error"
    """The mildest level of a finding that fails the check."""
    max_warnings: int | None = None
    """Number of warnings that pass; None for no limit."""
    exit_zero: bool = False
    """Whether findings do not show in the exit code; what could not be judged does all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """Which findings are known, and how."""

    file: Path | None = None
    tolerance: float = 2.0
    """Factor by which a known finding may become worse before it counts again."""
    is_strict: bool = False
    """Whether an entry that matches nothing any more fails the check."""
    targets: tuple[str, ...] | None = None
    """Names of all configured targets; None where nothing is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTarget:
    """A target of a check, and all that is known of how to run it."""

    name: str
    """Name as written by the user, or in the configuration."""
    spec: str
    """`path/file.py[:EXPR]` or `package.module[:EXPR]`."""
    folder: Path
    """The working directory in which it runs."""
    options: TargetOptions = field(default_factory=TargetOptions)
    """Options of the run; its seed is the first one."""
    trial: Trial = field(default_factory=Trial)
    seeds: int = 1
    """Under how many seeds it runs, each one higher than the last."""
    timeout: float | None = None
    """Seconds for one run; None is for ever."""

    @property
    def every_seed(self) -> range:
        """The seeds of its runs."""
        first = self.options.seed or 0
        return range(first, first + self.seeds)
