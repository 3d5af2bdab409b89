"""The options and arguments that several commands share."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gradscope.cli.console import ColorChoice
from gradscope.config.formats import OutputFormatOption, ReportFormat
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option, Overrides
from gradscope.rules.settings import Settings
from gradscope.target.options import OVERFIT_STEPS, TargetOptions, Trial

_OUTPUT = "Output"
_RECORDING = ".gradscope"
"""Suffix of a recording."""

TargetArgument = Annotated[
    str,
    Argument(
        metavar="TARGET",
        help="path/file.py[:EXPR] or package.module[:EXPR]. EXPR is a name in the file, or a call "
        "with literal arguments: 'model.py:Net(hidden=64)'.",
        show_default=False,
    ),
]
FileArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="-- ARGS", help="Arguments for the target's file (sys.argv).", show_default=False
    ),
]

ConfigOption = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE",
        help="Read \\[tool.gradscope] from FILE instead of the nearest pyproject.toml.",
        panel="Rules",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFile:
    """The file that configures gradscope."""

    config: ConfigOption = None

    @staticmethod
    def of(given: Overrides) -> Path | None:
        """Return the file among the given options; None if it is not given."""
        file = given.get("config")
        return Path(file) if isinstance(file, str) else None


LoadingOptions = Annotated[Overrides, TargetOptions]
"""Overrides options that say how to load a target."""
TrialOptions = Annotated[Overrides, TargetOptions, Trial]
"""Overrides options that say how to load a target, and which steps to run."""
RuleOptions = Annotated[Overrides, Settings, ConfigurationFile]
"""Overrides options that select rules, and the configuration."""

OpenOption = Annotated[
    bool, Option("--open", help="Open the report in a browser, as html.", panel=_OUTPUT)
]
OutputFileOption = Annotated[
    str,
    Option(
        "-o",
        "--output-file",
        metavar="PATH",
        help="Write the output to PATH; - for stdout.",
        panel=_OUTPUT,
    ),
]
ReportFileOption = Annotated[
    str,
    Option(
        "-o",
        "--output-file",
        envvar="GRADSCOPE_OUTPUT_FILE",
        metavar="PATH",
        help="Write the report to PATH; - for stdout.",
        panel=_OUTPUT,
    ),
]
SaveOption = Annotated[
    Path | None,
    Option("--save", metavar="RECORDING", help="Save the recording.", panel=_OUTPUT),
]
ForceOption = Annotated[
    bool, Option("-f", "--force", help="Let --save overwrite files.", panel=_OUTPUT)
]
QuietOption = Annotated[
    bool, Option("-q", "--quiet", help="Show only warnings and errors.", panel=_OUTPUT)
]
VerboseOption = Annotated[
    bool, Option("-v", "--verbose", help="Show full tracebacks.", panel=_OUTPUT)
]
ColorOption = Annotated[ColorChoice, Option("--color", help="Colour the output.", panel=_OUTPUT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOutput:
    """Output options of a command that runs one target."""

    output_format: OutputFormatOption = None
    output_file: ReportFileOption = "-"
    open_page: OpenOption = False
    save: SaveOption = None
    force: ForceOption = False
    quiet: QuietOption = False
    verbose: VerboseOption = False
    color: ColorOption = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOutput:
    """Output options of a command that renders recordings."""

    output_format: OutputFormatOption = None
    output_file: ReportFileOption = "-"
    open_page: OpenOption = False
    quiet: QuietOption = False
    color: ColorOption = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOutput:
    """Output options of a comparison."""

    output_format: Annotated[
        ReportFormat | None,
        Option(
            "--output-format",
            help="Report format. Default: html for .html files, otherwise full.",
            panel=_OUTPUT,
            show_default=False,
        ),
    ] = None
    output_file: OutputFileOption = "-"
    open_page: OpenOption = False
    quiet: QuietOption = False
    verbose: VerboseOption = False
    color: ColorOption = "auto"


def is_recording(text: str) -> bool:
    """Return whether a target is the file of a recording."""
    return text.endswith(_RECORDING)


def given_arguments(args: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Return the arguments for the target's file under their configuration key, if any."""
    return {"args": tuple(args)} if args else {}


def check_file_arguments(args: list[str] | None) -> None:
    """Check that the arguments after TARGET are meant for its file.

    Raises:
        GradscopeError: There is no `--` before them.
    """
    if args and "--" not in sys.argv:
        raise GradscopeError(
            f"unexpected argument {args[0]!r}: expected one TARGET",
            help=f"arguments for the target's file go after --: -- {shlex.join(args)}",
        )


def split_arguments(
    given: Sequence[str], command_line: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the arguments before `--`, and those after it, which are for the targets' files.

    Args:
        given: All positional arguments; the parser has dropped the `--`.
        command_line: The command line, which still has the `--`.
    """
    if "--" not in command_line:
        return tuple(given), ()
    after = len(command_line) - command_line.index("--") - 1
    return tuple(given[: len(given) - after]), tuple(given[len(given) - after :])


def with_optional_values(words: list[str]) -> list[str]:
    """Return a command line in which `--overfit` has its number, which may be left out.

    The parser would take the word behind it, such as the target, for the number.
    """
    end = words.index("--") if "--" in words else len(words)
    filled: list[str] = []
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ""
        lacks = word == "--overfit" and position < end and not following.isdecimal()
        filled += [word, str(OVERFIT_STEPS)] if lacks and words[0] != "run" else [word]
    return filled
