"""The options that several commands share, and options that are the fields of dataclasses."""

import dataclasses
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

from gradscope.cli.console import ColorChoice
from gradscope.config.formats import OutputFormatOption, ReportFormat
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.checks import Value
from gradscope.options.declaration import Argument, Option, Overrides, Parameter, declarations
from gradscope.rules.settings import Settings
from gradscope.target.options import OVERFIT_STEPS, TargetOptions, Trial


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that hold several options are spread into those options.

    ```
    @with_groups
    def inspect(run: Annotated[Overrides, TargetOptions, Trial], view: ViewOptions) -> None: ...
    ```

    has the declared options of `TargetOptions` and `Trial`, and gets those that were given on the
    command line, by their configuration keys. It also has the fields of the dataclass `ViewOptions`
    as options, and gets an instance.
    """
    groups = {
        name: group
        for name, parameter in inspect.signature(command).parameters.items()
        if (group := _group(parameter)) is not None
    }

    def run(**values: object) -> None:
        instances = {name: group.value(values) for name, group in groups.items()}
        command(**values, **instances)

    return with_parameters(run, tuple(_spread(command)), command)


def with_parameters(
    run: Callable[..., None],
    parameters: tuple[inspect.Parameter, ...],
    command: Callable[..., None],
) -> Callable[..., None]:
    """Return a function that a parser takes for a command with some parameters."""
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


class _Instance:
    """A dataclass with fields that are options; the command gets an instance."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._declared = declarations(kind)

    def parameters(self) -> Iterator[inspect.Parameter]:
        hints = get_type_hints(self._kind, include_extras=True)
        for key, declared in self._declared.items():
            yield _parameter(_name(key), hints[declared.field], declared.default)

    def value(self, values: dict[str, object]) -> object:
        """Return the instance, and take the values of its fields out of those of the command."""
        return self._kind(
            **{declared.field: values.pop(_name(key)) for key, declared in self._declared.items()}
        )


class _Overrides:
    """Dataclasses that declare options; the command gets the given ones by configuration key."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self._declared = {
            key: declared for kind in kinds for key, declared in declarations(kind).items()
        }

    def parameters(self) -> Iterator[inspect.Parameter]:
        for key, declared in self._declared.items():
            yield _parameter(_name(key), declared.parameter, None)

    def value(self, values: dict[str, object]) -> Overrides:
        """Return the given options, and take all of them out of the values of the command."""
        taken = {key: values.pop(_name(key)) for key in self._declared}
        # An option of several values that is not given is an empty list.
        return {key: _plain(value) for key, value in taken.items() if value not in (None, [])}


def _plain(value: object) -> Value:
    """Return a parsed value as the configuration would hold it."""
    if isinstance(value, list):
        return tuple(value)
    assert isinstance(value, Path | str | int | float | bool)
    return str(value) if isinstance(value, Path) else value


def _name(key: str) -> str:
    return key.replace("-", "_")


def _group(parameter: inspect.Parameter) -> _Instance | _Overrides | None:
    """Return the group of options that a parameter holds; None if it is a single one."""
    kind = parameter.annotation
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _Instance(kind)
    kinds = tuple(one for one in get_args(kind)[1:] if dataclasses.is_dataclass(one))
    return _Overrides(kinds) if kinds else None  # type: ignore[arg-type]


def _spread(command: Callable[..., None]) -> Iterator[inspect.Parameter]:
    for name, parameter in inspect.signature(command).parameters.items():
        group = _group(parameter)
        if group is None:
            yield _parameter(name, parameter.annotation, parameter.default)
        else:
            yield from group.parameters()


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    """Return a parameter of a command; an option without a name is called like it."""
    kind, *metadata = get_args(annotation) or (annotation,)
    if metadata and isinstance(metadata[0], Option) and not metadata[0].names:
        named = Parameter(f"--{name.replace('_', '-')}", **metadata[0].settings)
        annotation = Annotated[kind, named]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


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
        help="Read [tool.gradscope] from FILE instead of the nearest pyproject.toml.",
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
    bool, Option("-q", "--quiet", help="Show only the findings and the last line.", panel=_OUTPUT)
]

NoProgressOption = Annotated[
    bool, Option("-q", "--quiet", help="Show no notes and no progress.", panel=_OUTPUT)
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
            help="Report format. Default: by the file's extension, otherwise full.",
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
        # `run` passes such a word on to the script.
        filled += [word, str(OVERFIT_STEPS)] if lacks and words[0] != "run" else [word]
    return filled
