"""Documents and checks the parameters of Python functions from the options that declare them."""

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar, get_args, get_origin

from gradscope.errors import GradscopeError
from gradscope.options.declaration import Declaration, declarations

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_ENTRY = re.compile(r"^(\w+):", re.MULTILINE)
_WIDTH = 100
_INDENT = 8


def documented(
    *kinds: type,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that adds the parameters that dataclasses declare to a docstring.

    The section `Args` then has every parameter, in the order of the signature. A parameter that the
    docstring describes itself keeps that text.
    """
    declared = {one.field: one for kind in kinds for one in declarations(kind).values()}

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        if function.__doc__ is not None:  # there is none under `python -OO`
            before, args, after = _parts(inspect.cleandoc(function.__doc__))
            entries = _entries(args)
            for name in inspect.signature(function).parameters:
                if name not in entries:
                    entries[name] = _entry(declared[name])
            ordered = [entries[name] for name in inspect.signature(function).parameters]
            function.__doc__ = f"{before}Args:\n" + "".join(ordered) + after
        return function

    return decorate


def _parts(docstring: str) -> tuple[str, str, str]:
    """Return what precedes the section `Args`, its entries, and what follows it."""
    before, _, rest = docstring.partition("Args:\n")
    args, blank, after = rest.partition("\n\n")
    return before, args + "\n", blank[1:] + after


def _entries(args: str) -> dict[str, str]:
    """Return the entries of a section `Args` by the names of the parameters."""
    text = textwrap.dedent(args)
    starts = [*_ENTRY.finditer(text)]
    ends = [start.start() for start in starts[1:]] + [len(text)]
    return {
        start[1]: textwrap.indent(text[start.start() : end], "    ")
        for start, end in zip(starts, ends, strict=True)
    }


def _entry(declared: Declaration) -> str:
    lines = textwrap.wrap(
        f"{declared.field}: {declared.documentation}",
        width=_WIDTH - _INDENT,
        subsequent_indent="    ",
        break_on_hyphens=False,
    )
    return textwrap.indent("\n".join(lines) + "\n", "    ")


def check_arguments(kind: type, **values: object) -> None:
    """Check arguments of a Python function by the options that declare them.

    Args:
        kind: The dataclass that declares the options.
        values: The arguments, by the names of its fields.

    Raises:
        GradscopeError: One is not among the choices, no whole number, or too small.
    """
    declared = {one.field: one for one in declarations(kind).values()}
    for name, value in values.items():
        # None is no number, but says that the option is not given.
        if value is None and declared[name].default is None:
            continue
        expected = _expected(declared[name], value)
        if expected is not None:
            raise GradscopeError(f"{name} is {value!r}, expected {expected}")


def _expected(declared: Declaration, value: object) -> str | None:
    """Return what a wrong value should be; None for a valid one."""
    if get_origin(declared.kind) is Literal:
        choices = get_args(declared.kind)
        return None if value in choices else f"one of {', '.join(choices)}"
    least = declared.minimum
    assert declared.kind is int
    assert least is not None
    # `True` is an `int` in Python.
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return None if is_number and value >= least else f"{least} or more"  # type: ignore[operator]
