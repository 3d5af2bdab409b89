"""The options that `gradscope run` alone has, in groups."""

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

_WATCH = "Watching"
_GATE = "Gate"
_OUTPUT = "Output"

ModuleOption = Annotated[
    bool, Option("-m", help="SCRIPT is the dotted name of a module, as for python -m.")
]
ScriptArgument = Annotated[
    str,
    Argument(
        metavar="SCRIPT",
        help="What to run: a file, or with -m a module. Options of gradscope go before it.",
        show_default=False,
    ),
]
ScriptArguments = Annotated[
    list[str] | None,
    Argument(metavar="ARGS", help="What it sees as sys.argv, options too.", show_default=False),
]
RunFileOption = Annotated[
    str | None,
    Option(
        "-o",
        "--output-file",
        envvar="GRADSCOPE_OUTPUT_FILE",
        metavar="PATH",
        help="Where to write the report, - for stdout; stderr if not given.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveRunOption = Annotated[
    Path | None,
    Option(
        "--save",
        metavar="RECORDING",
        help="Where to keep the recording; SCRIPT.gradscope here, or with a number, if not given.",
        rich_help_panel=_OUTPUT,
    ),
]
LiveOption = Annotated[
    bool,
    Option(
        "--live",
        help="Show the training on the terminal while it goes on, below what it prints.",
        rich_help_panel=_OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchGroup:
    """How much of the training is recorded, and how much of it runs."""

    budget: Annotated[
        str,
        Option(
            "--budget",
            metavar="SHARE",
            help="Slow the training down by at most this share, such as 5%; none for no limit.",
            rich_help_panel=_WATCH,
        ),
    ] = "5%"
    every: Annotated[
        int | None,
        Option(
            "--every",
            min=1,
            metavar="N",
            help="Measure gradients in every Nth step. Default: as often as the budget allows.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    tensor_every: Annotated[
        int | None,
        Option(
            "--tensor-every",
            min=0,
            metavar="N",
            help="Capture every tensor in every Nth step, 0 for the first steps only. "
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
            help="Look at every tensor of this step too; may be given several times.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    no_tensors: Annotated[
        bool,
        Option(
            "--no-tensors",
            help="Look at no tensors: record parameters and the order of events alone.",
            rich_help_panel=_WATCH,
        ),
    ] = False
    keep_gradients: Annotated[
        KeepMode,
        Option(
            "--keep-gradients",
            help="Keep gradients for gradscope compare: every element, or a sketch of 4,096 "
            "numbers a parameter.",
            rich_help_panel=_WATCH,
        ),
    ] = "none"
    keep_gradients_every: Annotated[
        int,
        Option(
            "--keep-gradients-every",
            min=1,
            metavar="N",
            help="Keep those of the first step of each optimizer, and of every N-th after it.",
            rich_help_panel=_WATCH,
        ),
    ] = 100
    max_steps: Annotated[
        int | None,
        Option(
            "--max-steps",
            min=1,
            metavar="N",
            help="Stop recording after N steps of the optimizer; the script goes on.",
            rich_help_panel=_WATCH,
        ),
    ] = None
    stop_after: Annotated[
        int | None,
        Option(
            "--stop-after",
            min=1,
            metavar="N",
            help="End the script after N steps of the optimizer.",
            rich_help_panel=_WATCH,
        ),
    ] = None

    @property
    def share(self) -> float | None:
        """The budget as a share; None for no limit.

        Raises:
            GradscopeError: It is neither a share nor `none`.
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
        """Make sure that the options go together.

        Raises:
            GradscopeError: The recording ends before the step after which the script is to end, or
                the budget is no share, or tensors are wanted and not wanted.
        """
        _ = self.share
        if self.no_tensors and self.tensors_at:
            raise GradscopeError(
                f"--no-tensors and --tensors-at {self.tensors_at[0]} exclude each other",
                help="leave one of them out",
            )
        if self.stop_after and self.max_steps and self.stop_after > self.max_steps:
            raise GradscopeError(
                f"--max-steps {self.max_steps} ends the watching before"
                f" --stop-after {self.stop_after}",
                help="leave --max-steps out: nothing is recorded after the end",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGateGroup:
    """Whether findings show in the exit code, and which."""

    check: Annotated[
        bool,
        Option(
            "--check",
            help="Exit with 1 where gradients are broken, and with 2 where none were seen.",
            rich_help_panel=_GATE,
        ),
    ] = False
    fail_fast: Annotated[
        bool,
        Option(
            "--fail-fast",
            help="With --check, end the script as soon as there is something to fail for.",
            rich_help_panel=_GATE,
        ),
    ] = False
    fail_level: Annotated[
        Severity | None,
        Option(
            "--fail-level",
            help="With --check, the mildest level that fails; error if not given.",
            rich_help_panel=_GATE,
        ),
    ] = None
    max_warnings: Annotated[
        int | None,
        Option(
            "--max-warnings",
            min=0,
            metavar="N",
            help="With --check, fail from more warnings than these on.",
            rich_help_panel=_GATE,
        ),
    ] = None

    def policy(self, configured: Policy) -> Policy | None:
        """Return the configured policy as the options change it; None where nothing is gated.

        Raises:
            GradscopeError: An option is of the gate, and `--check` is not given.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {
            name: value
            for name, value in values.items()
            if value is not None and value is not False
        }
        if given and not self.check:
            name = f"--{next(iter(given)).replace('_', '-')}"
            raise GradscopeError(f"{name} needs --check", help="which makes the run a gate")
        if not self.check:
            return None
        changes = {key: given[key] for key in ("fail_level", "max_warnings") if key in given}
        return replace(configured, **changes)
