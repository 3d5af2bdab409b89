"""Declares an option once, in the annotation of a dataclass's field.

```
@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    steps: Annotated[int, Option(help="Run N optimizer steps first.", min=0, metavar="N")] = 0
```

The command line takes `--steps` from it, the configuration the key `steps` with its check, and the
Python functions the documentation of their parameter `steps`. The declaration needs no parser:
typer takes as long to import as everything that `gradscope run` needs before the script runs, and
brings modules along that the script would find imported.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

from gradscope.frozen import dataclass
from gradscope.options import checks
from gradscope.options.checks import Check, Value

Setting = str | int | float | bool | None

Overrides = Mapping[str, Value]
"""Options given on the command line, by their configuration keys."""


class Parameter:
    """Settings of a command's parameter for the parser, in an `Annotated` beside its type.

    Args:
        names: The names as typed on the command line; none for an argument.
        settings: Keyword arguments of `typer.Option` or `typer.Argument`.
    """

    __slots__ = ("names", "settings")

    def __init__(self, *names: str, **settings: Setting) -> None:
        self.names, self.settings = names, settings


class Option(Parameter):
    """An option.

    Args:
        names: The names as typed. The field's name if there are none: `--grad-output` for
            `grad_output`.
        help: The help text of the command line.
        panel: The heading under which `--help` lists the option.
        check: The check of the value in the configuration. None derives it from the type and `min`.
        python: The documentation of the Python parameter. None takes the help text.
        shows_default: Whether the help text ends with the default of the dataclass.
        settings: Keyword arguments of `typer.Option`, such as `min` and `metavar`.
    """

    __slots__ = ("check", "python", "shows_default")

    def __init__(
        self,
        *names: str,
        help: str,
        panel: str | None = None,
        check: Check | None = None,
        python: str | None = None,
        shows_default: bool = False,
        **settings: Setting,
    ) -> None:
        super().__init__(*names, **settings, help=help, rich_help_panel=panel)
        self.check, self.python, self.shows_default = check, python, shows_default

    def described(self, *, help: str) -> "Option":
        """Return the option with another help text, for a command where it says more or less."""
        found = Option(*self.names, help=help, check=self.check, python=self.python)
        found.settings = {**self.settings, "help": help}
        return found


class Argument(Parameter):
    """An argument, known by its position."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """An option as a field of a dataclass declares it."""

    field: str
    """Name of the field."""
    kind: object
    """Type of the field, without None."""
    default: object
    """Default value of the field; `dataclasses.MISSING` without one."""
    option: Option

    @property
    def names(self) -> tuple[str, ...]:
        """Names as typed on the command line."""
        return self.option.names or (f"--{self.field.replace('_', '-')}",)

    @property
    def key(self) -> str:
        """Configuration key: the long name without its dashes."""
        (long,) = (name for name in self.names if name.startswith("--"))
        return long.partition("/")[0].removeprefix("--")

    @property
    def parameter(self) -> object:
        """Annotated type of the command's parameter; its value is None if it is not given."""
        # typer knows lists, and no tuples of any length.
        kind = list[str] if get_origin(self.kind) is tuple else self.kind
        settings = {**self.option.settings}
        if self.option.shows_default:
            default = f"{self.default:g}" if isinstance(self.default, float) else self.default
            settings["help"] = f"{settings['help']} Default: {default}."
        return Annotated[kind | None, Parameter(*self.names, **settings)]  # type: ignore[operator]

    @property
    def documentation(self) -> str:
        """Text on the parameter of a Python function."""
        return self.option.python or str(self.option.settings["help"])

    @property
    def minimum(self) -> int | float | None:
        """Smallest valid number; None without a limit."""
        least = self.option.settings.get("min")
        assert least is None or isinstance(least, int | float)
        return int(least) if isinstance(least, float) and least.is_integer() else least

    @property
    def check(self) -> Check:
        """Check of a value in the configuration."""
        if self.option.check is not None:
            return self.option.check
        if get_origin(self.kind) is Literal:
            return checks.choice(*get_args(self.kind))
        if self.kind is int:
            least = self.minimum
            return checks.whole_number(-checks.LARGEST if least is None else int(least))
        if self.kind is float:
            return checks.number(self.minimum)
        if self.kind is bool:
            return checks.flag
        return checks.texts if get_origin(self.kind) is tuple else checks.text


@cache
def declarations(kind: type) -> Mapping[str, Declaration]:
    """Return the options that a dataclass declares, by their configuration keys."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        annotated, *metadata = get_args(hints[field.name]) or (hints[field.name],)
        for option in metadata:
            if isinstance(option, Option):
                declared = Declaration(
                    field=field.name,
                    kind=without_none(annotated),
                    default=field.default,
                    option=option,
                )
                found[declared.key] = declared
    return found


def without_none(kind: object) -> object:
    """Return the type of a value that is given: `int` for `int | None`."""
    options = [one for one in get_args(kind) if one is not NoneType]
    return options[0] if NoneType in get_args(kind) else kind


def field_values(kind: type, given: Overrides) -> dict[str, Value]:
    """Return the given values of options that a dataclass declares, by the names of its fields."""
    return {
        declared.field: given[key] for key, declared in declarations(kind).items() if key in given
    }
