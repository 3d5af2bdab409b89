"""Options of `gradscope run`."""

import dataclasses
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from gradscope.check.options import Policy
from gradscope.cli.declared import Argument, Option
from gradscope.errors import GradscopeError
from gradscope.recording.finding import Severity
from gradscope.recording.stored_gradient import KeepMode

_WATCH = "Recording"
_CHECK = "Check"
_OUTPUT = "Output"

ModuleOption = Annotated[bool, Option("-m", help="Run SCRIPT as a module, as python -m does.")]
ScriptArgument = Annotated[
    str,
    Argument(
        metavar="SCRIPT",
        help="Script to run, or with -m a module. Put options of gradscope before it.",
        show_default=False,
    ),
]
ScriptArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="ARGS",
        help="Arguments and options for the script (sys.argv).",
        show_default=False,
    ),
]
RunFileOption = Annotated[
    str | None,
    Option(
        "-o",
        "--output-file",
        envvar="GRADSCOPE_OUTPUT_FILE",
        metavar="PATH",
        help="Write the report to PATH; - for stdout. Default: stderr.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveRunOption = Annotated[
    Path | None,
    Option(
        "--save",
        metavar="RECORDING",
        help="Save the recording to this file. Default: SCRIPT.gradscope, numbered if it exists.",
        rich_help_panel=_OUTPUT,
    ),
]
NprocOption = Annotated[
    int | None,
    Option(
        "--nproc",
        min=1,
        metavar="N",
        help="Run N ranks of SCRIPT on this machine, as torchrun --nproc-per-node N does.",
        show_default=False,
    ),
]
LiveOption = Annotated[
    bool,
    Option(
        "--live",
        help="Show live progress on the terminal, below the script's own output.",
        rich_help_panel=_OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchGroup:
    """Options that say how much of the training is recorded, and when it stops."""

    budget: Annotated[
        str,
        Option(
            "--budget",
            metavar="SHARE",
            help="Largest slowdown of the training, such as 5%; none for no limit.",
            rich_help_panel=_WATCH,
        ),
    ] = "5%"
    every: Annotated[
        int | None,
        Option(
            "--every",
            min=1,
            metavar="N",
            help="Measure gradients every Nth step. Default: as often as the budget allows.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    tensor_every: Annotated[
        int | None,
        Option(
            "--tensor-every",
            min=0,
            metavar="N",
            help="Capture every tensor every Nth step; 0 captures the first steps only. "
            "Default: as often as the budget allows.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    tensors_at: Annotated[
        list[int] | None,
        Option(
            "--tensors-at",
            min=0,
            metavar="STEP",
            help="Also capture every tensor at this step. Repeat for several steps.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    no_tensors: Annotated[
        bool,
        Option(
            "--no-tensors",
            help="Capture no tensors: record only parameters and events.",
            rich_help_panel=_WATCH,
        ),
    ] = False
    keep_gradients: Annotated[
        KeepMode,
        Option(
            "--keep-gradients",
            help="Store gradients for gradscope compare: every element, or a sketch of 4,096 "
            "numbers per parameter.",
            rich_help_panel=_WATCH,
        ),
    ] = "none"
    keep_gradients_every: Annotated[
        int,
        Option(
            "--keep-gradients-every",
            min=1,
            metavar="N",
            help="Store gradients at the first step of each optimizer, then every Nth step.",
            rich_help_panel=_WATCH,
        ),
    ] = 100
    max_steps: Annotated[
        int | None,
        Option(
            "--max-steps",
            min=1,
            metavar="N",
            help="Stop recording after N optimizer steps; the script continues.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    stop_after: Annotated[
        int | None,
        Option(
            "--stop-after",
            min=1,
            metavar="N",
            help="Stop the script after N optimizer steps.",
            rich_help_panel=_WATCH,
        ),
    ] = None

    @property
    def share(self) -> float | None:
        """Budget as a share; None for no limit.

        Raises:
            GradscopeError: The budget is neither a share nor `none`.
        """
        text = self.budget.strip().lower()
        if text == "none":
            return None
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if not 0 < share < math.inf:
            raise GradscopeError(
                f"--budget is {self.budget!r}, expected a share such as 5%, or none"
            )
        return share

    def check(self) -> None:
        """Check that the options are compatible.

        Raises:
            GradscopeError: Recording would stop before the script does, the budget is not a
                share, or `--no-tensors` and `--tensors-at` are both given.
        """
        _ = self.share
        if self.no_tensors and self.tensors_at:
            raise GradscopeError(
                f"--no-tensors and --tensors-at {self.tensors_at[0]} cannot be combined",
                help="remove one of them",
            )
        if self.stop_after and self.max_steps and self.stop_after > self.max_steps:
            raise GradscopeError(
                f"--max-steps {self.max_steps} ends the recording before"
                f" --stop-after {self.stop_after}",
                help="remove --max-steps: nothing is recorded after the script ends",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGateGroup:
    """Options that say which findings change the exit code."""

    check: Annotated[
        bool,
        Option(
            "--check",
            help="Exit with code 1 if gradients are broken, or 2 if none were observed.",
            rich_help_panel=_CHECK,
        ),
    ] = False
    fail_fast: Annotated[
        bool,
        Option(
            "--fail-fast",
            help="With --check, stop the script at the first finding that fails.",
            rich_help_panel=_CHECK,
        ),
    ] = False
    fail_level: Annotated[
        Severity | None,
        Option(
            "--fail-level",
            help="With --check, lowest level that fails. Default: error.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    max_warnings: Annotated[
        int | None,
        Option(
            "--max-warnings",
            min=0,
            metavar="N",
            help="With --check, fail above N warnings.",
            rich_help_panel=_CHECK,
        ),
    ] = None

    def policy(self, configured: Policy) -> Policy | None:
        """Return the configured policy with the options applied; None without `--check`.

        Raises:
            GradscopeError: An option needs `--check`, which is not given.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {
            name: value
            for name, value in values.items()
            if value is not None and value is not False
        }
        if given and not self.check:
            name = f"--{next(iter(given)).replace('_', '-')}"
            raise GradscopeError(f"{name} needs --check", help="add --check")
        if not self.check:
            return None
        changes = {key: given[key] for key in ("fail_level", "max_warnings") if key in given}
        return replace(configured, **changes)
