"""Options of `gradscope run`, besides those for recording."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from gradscope.check.options import Policy
from gradscope.cli import options
from gradscope.config.formats import OutputFormatOption
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option, declarations
from gradscope.recording.finding import Severity

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Output options of a run."""

    output_format: OutputFormatOption = None
    output_file: Annotated[
        str | None,
        Option(
            "-o",
            "--output-file",
            envvar="GRADSCOPE_OUTPUT_FILE",
            metavar="PATH",
            help="Write the report to PATH; - for stdout. Default: stderr.",
            panel=_OUTPUT,
        ),
    ] = None
    open_page: options.OpenOption = False
    save: Annotated[
        Path | None,
        Option(
            metavar="RECORDING",
            help="Save the recording to this file. "
            "Default: SCRIPT.gradscope, numbered if it exists.",
            panel=_OUTPUT,
        ),
    ] = None
    live: Annotated[
        bool,
        Option(
            help="Show live progress on the terminal, below the script's own output.",
            panel=_OUTPUT,
        ),
    ] = False
    force: options.ForceOption = False
    quiet: options.QuietOption = False
    color: options.ColorOption = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck:
    """Options that say which findings change the exit code."""

    check: Annotated[
        bool,
        Option(
            help="Exit with code 1 if gradients are broken, or 2 if none were observed.",
            panel=_CHECK,
        ),
    ] = False
    fail_fast: Annotated[
        bool,
        Option(
            help="With --check, stop the script at the first finding that fails.",
            panel=_CHECK,
        ),
    ] = False
    fail_level: Annotated[
        Severity | None,
        declarations(Policy)["fail-level"].option.described(
            help="With --check, lowest level that fails. Default: error."
        ),
    ] = None
    max_warnings: Annotated[
        int | None,
        declarations(Policy)["max-warnings"].option.described(
            help="With --check, fail above N warnings."
        ),
    ] = None

    def policy(self, configured: Policy) -> Policy | None:
        """Return the configured policy with the options applied; None without `--check`.

        Raises:
            GradscopeError: An option needs `--check`, which is not given.
        """
        given = {
            "fail_fast": self.fail_fast or None,
            "fail_level": self.fail_level,
            "max_warnings": self.max_warnings,
        }
        names = [name for name, value in given.items() if value is not None]
        if names and not self.check:
            name = f"--{names[0].replace('_', '-')}"
            raise GradscopeError(f"{name} needs --check", help="add --check")
        if not self.check:
            return None
        return replace(
            configured,
            fail_level=self.fail_level or configured.fail_level,
            max_warnings=configured.max_warnings
            if self.max_warnings is None
            else self.max_warnings,
        )
