"""Checks the value of an option, and says what is wrong with an invalid one."""

import math
from collections.abc import Callable, Collection

from gradscope.errors import GradscopeError

Value = str | int | float | bool | tuple[str, ...]

Check = Callable[[object], Value]
"""Function that returns the value to keep, or raises `WrongValue`."""

LARGEST = 2**63 - 1
"""Largest whole number that seeds of torch and cells of a recording can hold."""


class WrongValue(Exception):  # noqa: N818 - the caller adds the name of the value
    """An invalid value; the words follow its name in a message.

    Args:
        wrong: Text such as `has to be a number`.
        help: Hint at a valid value.
    """

    def __init__(self, wrong: str, *, help: str | None = None) -> None:
        super().__init__(wrong)
        self.wrong = wrong
        self.help = help


def checked_option(key: str, value: Value, check: Check) -> Value:
    """Return the checked value of an option of the command line.

    Raises:
        GradscopeError: The value is invalid.
    """
    try:
        return check(value)
    except WrongValue as error:
        raise GradscopeError(f"--{key} {error.wrong}", help=error.help) from None


def did_you_mean(name: str, names: Collection[str]) -> str | None:
    """Return a hint at the name most similar to a wrong one; None if none is similar."""
    # Deferred: only errors need it.
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1) or get_close_matches(name.lower(), names, n=1)
    return f"did you mean `{close[0]}`?" if close else None


def text(value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str):
        raise WrongValue("has to be a string")
    if not value.strip():
        raise WrongValue("is empty")
    # No path and no argument of a process can hold one.
    if "\0" in value:
        raise WrongValue("holds a null character")
    return value


def flag(value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise WrongValue("has to be true or false")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Return a list of texts; an empty text may be one of them."""
    if not isinstance(value, list | tuple):
        raise WrongValue("has to be a list of strings")
    if not all(isinstance(item, str) and "\0" not in item for item in value):
        raise WrongValue("has to be a list of strings")
    return tuple(value)


def text_or_texts(value: object) -> tuple[str, ...]:
    """Return one text or a list of them as a tuple."""
    if isinstance(value, str):
        return (text(value),)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise WrongValue("has to be a string or a list of strings")
    if not value:
        raise WrongValue("is empty")
    return tuple(text(item) for item in value)


def choice(*names: str) -> Check:
    """Return the check that a value is one of the names."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            shown = f", and is `{value}`" if isinstance(value, str) else ""
            hint = did_you_mean(value, names) if isinstance(value, str) else None
            raise WrongValue(f"has to be one of {', '.join(names)}{shown}", help=hint)
        return value

    return check


def whole_number(minimum: int) -> Check:
    """Return the check that a value is a whole number of 64 bits that is not below another."""

    def check(value: object) -> int:
        # `True` is an `int` in Python, here and below.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValue("has to be a whole number")
        if not isinstance(value, int):
            raise WrongValue(f"has to be a whole number, and is {value:g}")
        _check_range(value, minimum, LARGEST)
        return value

    return check


def number(minimum: float | None = None, *, can_be_infinite: bool = False) -> Check:
    """Return the check that a value is a number that is not below another."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValue("has to be a number")
        try:
            as_float = float(value)
        except OverflowError:
            # A whole number of TOML may be larger than any float.
            raise WrongValue("is too large") from None
        if math.isnan(as_float):
            raise WrongValue("has to be a number, and is nan")
        if math.isinf(as_float) and not can_be_infinite:
            raise WrongValue("has to be a finite number")
        _check_range(as_float, minimum, None)
        return as_float

    return check


def share(value: object) -> Value:
    """Return a number from 0 to 1, or infinity, which no share reaches."""
    found = number(0, can_be_infinite=True)(value)
    if isinstance(found, float) and 1 < found < math.inf:
        raise WrongValue(f"has to be a share of at most 1, and is {found:g}")
    return found


def seconds(value: object) -> float:
    """Return a number of seconds above zero."""
    found = number(0)(value)
    if not isinstance(found, float) or found == 0:
        raise WrongValue("has to be above 0 seconds")
    return found


def _check_range(value: float, minimum: float | None, maximum: float | None) -> None:
    # Python itself refuses to write whole numbers of thousands of digits.
    shown = f", and is {value:g}" if abs(value) < 1e15 else ""
    if minimum is not None and value < minimum:
        raise WrongValue(f"has to be at least {minimum}{shown}")
    if maximum is not None and value > maximum:
        raise WrongValue(f"has to be at most {maximum}{shown}")
