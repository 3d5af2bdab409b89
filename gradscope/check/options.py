"""Options of a check, besides how to load the target and which rules judge."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from gradscope.frozen import dataclass
from gradscope.options import checks
from gradscope.options.declaration import Option
from gradscope.recording.finding import Severity
from gradscope.target.options import TargetOptions, Trial

_CHECK = "Check"
_BASELINE = "Baseline"

DEFAULT_BASELINE = Path(".gradscope-baseline.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Policy that makes a check fail."""

    fail_level: Annotated[
        Severity,
        Option(help="Lowest level that fails the check.", panel=_CHECK, shows_default=True),
    ] = "error"
    max_warnings: Annotated[
        int | None, Option(min=0, metavar="N", help="Fail above N warnings.", panel=_CHECK)
    ] = None
    exit_zero: bool = False
    """Whether findings leave the exit code at 0; a target that cannot be judged changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """Which findings are known, and how strictly they are compared."""

    file: Annotated[
        Path | None,
        Option(
            "--baseline",
            metavar="FILE",
            help="Ignore findings listed in FILE, unless they became worse.",
            panel=_BASELINE,
        ),
    ] = None
    writes: Annotated[
        bool,
        Option(
            "--write-baseline",
            help=f"Write all findings to the baseline. Default file: {DEFAULT_BASELINE}.",
            panel=_BASELINE,
        ),
    ] = False
    prunes: Annotated[
        bool,
        Option(
            "--prune-baseline",
            help="Remove findings that no longer occur from the baseline.",
            panel=_BASELINE,
        ),
    ] = False
    is_strict: Annotated[
        bool,
        Option(
            "--strict-baseline/--no-strict-baseline",
            help="Fail if the baseline lists findings that no longer occur.",
            panel=_BASELINE,
        ),
    ] = False
    tolerance: Annotated[
        float,
        Option(
            "--baseline-tolerance",
            min=1.0,
            metavar="X",
            help="Factor by which a known finding may become worse.",
            panel=_BASELINE,
            shows_default=True,
        ),
    ] = 2.0
    targets: tuple[str, ...] | None = None
    """Names of all configured targets; None without a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTarget:
    """A target of a check, and everything that says how to run it."""

    name: str
    """Name as written by the user, or in the configuration."""
    spec: str
    """`path/file.py[:EXPR]` or `package.module[:EXPR]`."""
    folder: Path
    """Working directory of the run."""
    options: TargetOptions = field(default_factory=TargetOptions)
    """Options of the run; its seed is the first one."""
    trial: Trial = field(default_factory=Trial)
    seeds: Annotated[
        int,
        Option(
            min=1,
            metavar="N",
            help="Run each target with N seeds, and check the worst.",
            panel=_CHECK,
        ),
    ] = 1
    timeout: Annotated[
        float | None,
        Option(
            metavar="S",
            help="Timeout in seconds for each run.",
            panel=_CHECK,
            check=checks.seconds,
        ),
    ] = None
    allow_guesses: Annotated[
        bool,
        Option(
            help="Guess a missing batch, loss or constructor argument, as inspect does, instead of "
            "failing with exit code 2.",
            panel=_CHECK,
        ),
    ] = False

    @property
    def every_seed(self) -> range:
        """The seeds of its runs, each one higher than the last."""
        first = self.options.seed or 0
        return range(first, first + self.seeds)
