"""The help pages: usage, options in groups, and examples, within the columns of the terminal."""

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from typer import Context
from typer.core import TyperCommand, TyperGroup

from gradscope.cli.console import make_console
from gradscope.cli.errors import show_error
from gradscope.cli.shell.usage_error import UsageError, worded
from gradscope.errors import ExitCode
from gradscope.frozen import dataclass
from gradscope.options.declaration import Argument, Parameter

if TYPE_CHECKING:
    from gradscope.cli.shell.page import Rows


EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "": (
        "gradscope inspect model.py",
        "gradscope run train.py",
    ),
    "inspect": (
        "gradscope inspect model.py",
        "gradscope inspect 'net.py:Net(10)' --input 8,3,32,32 -o net.html",
    ),
    "check": (
        "gradscope check model.py --fail-level warning",
        "gradscope check --seeds 3 --output-format github",
    ),
    "clip-report": (
        "gradscope clip-report model.py --max-norm auto",
        "gradscope clip-report run.gradscope",
    ),
    "graph": (
        "gradscope graph model.py --depth 2",
        "gradscope graph model.py -o graph.svg",
    ),
    "report": (
        "gradscope report run.gradscope -o run.html --open",
        "gradscope report run.gradscope --step 40",
    ),
    "compare": (
        "gradscope compare before.gradscope after.gradscope --fail-on-regression",
        "gradscope compare model.py --vary dtype=float32,bfloat16",
    ),
    "view": (
        "gradscope view",
        "gradscope view runs --open",
    ),
    "export": (
        "gradscope export run.gradscope --to tensorboard -o logs",
        "gradscope export run.gradscope --to csv -o tables",
    ),
    "fix": (
        "gradscope fix train.gradscope",
        "gradscope fix train.gradscope --verify 50",
    ),
    "rule": (
        "gradscope rule GS201",
        "gradscope rule GS101 --why run.gradscope",
    ),
    "config": (
        "gradscope config",
        "gradscope config fail-level",
    ),
    "run": (
        "gradscope run train.py --epochs 3",
        "gradscope run --check --save run.gradscope -m package.train",
    ),
}
"""By command; those of the program itself under the empty name."""


_LONGEST_CHOICE = 24
"""Characters up to which choices stand beside the name of their option."""
_PLACEHOLDERS = {int: "N", float: "X", Path: "PATH"}
COMMAND_GROUPS = (
    ("Models", ("inspect", "check", "clip-report", "graph")),
    ("Training scripts", ("run", "fix")),
    ("Recordings", ("report", "view", "compare", "export")),
    ("Rules and configuration", ("rule", "config")),
)
_HELP = ("-h, --help", "Show this page.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An option or argument on a help page."""

    group: str
    names: str
    text: str


class CommandHelp(TyperCommand):
    """A command whose help page is written here."""

    function: Callable[..., None]
    """Function of the command, with its declared options."""

    def format_help(self, ctx: Context, formatter: object) -> None:  # type: ignore[override]
        """Print the help page."""
        entries = list(entries_of(self.function))
        usage = " ".join([ctx.command_path, "[OPTIONS]", *_usage(self.function)])
        groups = [*_grouped(entries), ("Help", [_HELP])]
        _show(inspect.getdoc(self.function) or "", usage, groups, EXAMPLES[ctx.info_name or ""])


class ProgramHelp(TyperGroup):
    """The program, whose help page lists the commands."""

    def main(self, *args: typing.Any, **settings: typing.Any) -> typing.Any:  # noqa: ANN401 - as typer declares it
        """Run the command line and exit; a wrong one is an error of one line."""
        if not settings.get("standalone_mode", True):
            return super().main(*args, **settings)
        try:
            # Otherwise the parser prints an error in several lines, and exits with a code of its
            # own.
            code = super().main(*args, **{**settings, "standalone_mode": False})
        except UsageError as error:
            show_error(worded(error))
            code = ExitCode.CANNOT_JUDGE
        sys.exit(code or ExitCode.OK)

    def format_help(self, ctx: Context, formatter: object) -> None:  # type: ignore[override]
        """Print the help page."""
        groups = [
            (title, [(name, _first_paragraph(self.commands[name].help or "")) for name in names])
            for title, names in COMMAND_GROUPS
        ]
        own = [
            ("-V, --version", "Show the version and exit."),
            (
                "--install-completion",
                "Let the shell complete commands, rules, targets and formats.",
            ),
            ("--show-completion", "Show the completion for the shell, to install it by hand."),
            _HELP,
        ]
        usage = f"{ctx.command_path} [OPTIONS] COMMAND [ARGS]..."
        _show(self.help or "", usage, [*groups, ("Help", own)], EXAMPLES[""])


def entries_of(command: Callable[..., None]) -> Iterator[Entry]:
    """Yield the arguments and options of a command, in its order."""
    for parameter in inspect.signature(command).parameters.values():
        kind, *told = get_args(parameter.annotation)
        declared = next(one for one in told if isinstance(one, Parameter))
        yield _entry(parameter, kind, declared)


def _entry(parameter: inspect.Parameter, annotated: object, declared: Parameter) -> Entry:
    settings, kind = declared.settings, _item_type(annotated)
    text = str(settings["help"])
    if isinstance(declared, Argument):
        return Entry(group="Arguments", names=_unbracketed(str(settings["metavar"])), text=text)
    names = declared.names or (f"--{parameter.name.replace('_', '-')}",)
    shown = ", ".join(name for text in names for name in text.split("/"))
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    placeholder = settings.get("metavar") or _placeholder(kind, choices, parameter.name)
    if choices and "|" not in str(placeholder):
        text += f" One of {', '.join(choices)}."
    if _shows_default(parameter.default, settings) and "Default:" not in text:
        text += f" Default: {parameter.default}."
    if settings.get("envvar"):
        text += f" Environment: {settings['envvar']}."
    return Entry(
        group=str(settings.get("rich_help_panel") or "Options"),
        names=f"{shown} {placeholder}".rstrip(),
        text=text,
    )


def _unbracketed(metavar: str) -> str:
    """Return a placeholder without the brackets around all of it."""
    return metavar[1:-1] if metavar.startswith("[") and metavar.endswith("]") else metavar


def _item_type(annotated: object) -> object:
    """Return a type without None and without its list."""
    kind = _some(annotated)
    return get_args(kind)[0] if get_origin(kind) is list else kind


def _placeholder(kind: object, choices: tuple[str, ...], name: str) -> str:
    if kind is bool:
        return ""
    together = "|".join(choices)
    if choices:
        return together if len(together) <= _LONGEST_CHOICE else name.rpartition("_")[2].upper()
    return _PLACEHOLDERS.get(typing.cast(type, kind), name.upper())


def _shows_default(default: object, settings: "typing.Mapping[str, object]") -> bool:
    is_plain = default in (None, False, "", "-", inspect.Parameter.empty)
    return not is_plain and settings.get("show_default", True) is not False


def _usage(command: Callable[..., None]) -> Iterator[str]:
    for parameter in inspect.signature(command).parameters.values():
        kind, *told = get_args(parameter.annotation)
        declared = next(one for one in told if isinstance(one, Argument | Parameter))
        if not isinstance(declared, Argument):
            continue
        name = str(declared.settings["metavar"])
        is_needed = parameter.default is inspect.Parameter.empty
        is_list = (
            get_origin(_some(kind)) is list and not name.startswith("--") and "..." not in name
        )
        named = name if is_needed or name.startswith("[") else f"[{name}]"
        yield f"{named}..." if is_list else named


def _some(annotated: object) -> object:
    """Return a type without None."""
    kinds = [kind for kind in get_args(annotated) if kind is not type(None)]
    is_union = get_origin(annotated) not in (Literal, list) and kinds
    return kinds[0] if is_union else annotated


def _grouped(entries: Iterable[Entry]) -> "Iterator[Rows]":
    groups: dict[str, list[tuple[str, str]]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append((entry.names, entry.text))
    yield from groups.items()


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _show(text: str, usage: str, groups: "Iterable[Rows]", examples: Iterable[str]) -> None:
    from gradscope.cli.shell.page import show_page  # deferred: it imports rich

    show_page(make_console(sys.stdout, "auto"), text, usage, groups, examples)
