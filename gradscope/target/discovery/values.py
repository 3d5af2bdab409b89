"""Evaluates EXPR in an imported file, and reads what factories and `gradscope_setup()` give."""

import inspect
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from gradscope.errors import GradscopeError
from gradscope.target.calling import signature_of
from gradscope.target.discovery.importing import Source
from gradscope.target.notation import Arguments, Expression
from gradscope.target.user_code import UserCode, did_you_mean

Option = Literal["--model", "--batch", "--loss"]

_FACTORIES: Mapping[Option, tuple[str, str]] = {
    "--model": ("build_model", "small_model"),
    "--batch": ("build_batch", "small_batch"),
    "--loss": ("criterion", "own_criterion"),
}
"""Name of the factory for each option, and an alternative name."""

_LITERALS: Mapping[object, str] = {float: "0.1", bool: "True", str: "'name'"}
"""Example values by annotation; integers go by their name."""

_INTEGERS = (
    ("vocab", "1000"), ("embeddings", "1000"), ("classes", "10"), ("labels", "10"),
    ("layers", "2"), ("depth", "2"), ("blocks", "2"), ("heads", "4"), ("groups", "1"),
    ("kernel", "3"), ("stride", "1"), ("padding", "1"), ("dilation", "1"),
    ("channel", "3"), ("experts", "4"), ("top_k", "2"), ("act", "4"), ("obs", "8"), ("state", "8"),
    ("out", "10"), ("in", "32"),
)  # fmt: skip

_FRACTIONS = ("dropout", "rate", "prob", "alpha", "eps", "momentum")


def evaluate(source: Source, expression: Expression) -> object:
    """Look the name up in the file, and make the call if there is one.

    Raises:
        GradscopeError: There is no such name, or the arguments do not fit.
        UserCodeError: The call raised.
    """
    value: object = source.module
    seen = source.location
    for name in expression.names:
        if not hasattr(value, name):
            raise GradscopeError(f"{seen!r} has no {name!r}", help=_suggest(value, name))
        value = getattr(value, name)
        seen = f"{seen}:{name}" if seen == source.location else f"{seen}.{name}"
    if expression.call is None:
        return value
    if not callable(value):
        raise GradscopeError(f"{seen!r} is {type(value).__name__} and cannot be called")
    return _call(value, expression, expression.call)


def build(
    function: Callable[..., object], name: str, location: str, option: Option = "--model"
) -> object:
    """Call a factory or class without arguments; `option` names the option that could pass some.

    Raises:
        GradscopeError: It needs arguments.
        UserCodeError: It raised.
    """
    missing = required_parameters(function)
    if missing:
        names = ", ".join(parameter.name for parameter in missing)
        count = f"{len(missing)} argument{'s' if len(missing) > 1 else ''}"
        raise GradscopeError(
            f"{name}() needs {count}: {names}",
            help=call_help(name, missing, location, option),
        )
    with UserCode(f"{name}() failed"):
        return function()


def required_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the required parameters of a function."""
    return [
        parameter
        for parameter in signature_of(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def call_help(
    name: str, missing: list[inspect.Parameter], location: str, option: Option = "--model"
) -> str:
    """Return a help line that passes arguments to a factory, as literals if possible."""
    given = guessed_arguments(missing)
    if given is None:
        return _factory_help(name, ", ".join(parameter.name for parameter in missing), option)
    if option == "--model":
        return f'gradscope inspect "{location}:{name}({given})"'
    return f'{option} "{name}({given})"'


def _factory_help(name: str, arguments: str, option: Option) -> str:
    own, other = _FACTORIES[option]
    # A function that calls itself would never end.
    if name != own:
        return f"write in the file:  def {own}(): return {name}({arguments})"
    return (
        f"write in the file:  def {other}(): return {name}({arguments})  and give {option} {other}"
    )


def guessed_arguments(missing: list[inspect.Parameter]) -> str | None:
    """Return literals for required arguments, as `hidden=64, classes=10`; None if one has none."""
    literals = [_literal(parameter) for parameter in missing]
    if None in literals:
        return None
    return ", ".join(f"{p.name}={text}" for p, text in zip(missing, literals, strict=True))


def _literal(parameter: inspect.Parameter) -> str | None:
    """Return an example value for a parameter; None if it is no literal."""
    name, annotation = parameter.name.lower(), parameter.annotation
    # With `from __future__ import annotations`, annotations are texts.
    if isinstance(annotation, str):
        annotation = {kind.__name__: kind for kind in (int, float, bool, str)}.get(annotation)
    if annotation is parameter.empty:
        if "config" in name or name in ("args", "cfg"):
            return None
        annotation = float if any(part in name for part in _FRACTIONS) else int
    if annotation is int:
        return next((text for part, text in _INTEGERS if _names(name, part)), "64")
    return _LITERALS.get(annotation)


def _names(name: str, part: str) -> bool:
    """Return whether a parameter's name has the part; short parts must be whole words."""
    # A short part such as `in` occurs within many words.
    return part in name if len(part) > 5 else any(w.startswith(part) for w in name.split("_"))


def _call(function: Callable[..., object], expression: Expression, given: Arguments) -> object:
    signature = signature_of(function)
    try:
        # Before the call, so that a `TypeError` of the function itself is not taken for a misfit.
        bound = signature.bind(*given.positional, **dict(given.keywords))
    except TypeError as misfit:
        name = expression.names[-1]
        raise GradscopeError(
            f"{expression.text} does not fit {name}{signature}",
            cause=str(misfit),
            help=_suggest_keyword(given, signature),
        ) from None
    with UserCode(f"{expression.text} failed"):
        return function(*bound.args, **bound.kwargs)


def _suggest(value: object, name: str) -> str | None:
    return did_you_mean(name, (other for other in vars(value) if not other.startswith("_")))


def _suggest_keyword(given: Arguments, signature: inspect.Signature) -> str | None:
    unknown = [name for name, _ in given.keywords if name not in signature.parameters]
    return did_you_mean(unknown[0], signature.parameters) if unknown else None


SETUP_KEYS = (
    "model", "batch", "loss_fn", "compute_loss", "optimizer", "clip_grad_norm",
)  # fmt: skip

NO_SETUP: Mapping[str, object] = MappingProxyType({})


def find_setup(source: Source) -> Mapping[str, object]:
    """Return the result of the file's `gradscope_setup()`, empty if there is none.

    Raises:
        GradscopeError: It is no dict of the known keys.
        UserCodeError: It raised.
    """
    function = getattr(source.module, "gradscope_setup", None)
    if not callable(function):
        return NO_SETUP
    return checked_setup(build(function, "gradscope_setup", source.location), "gradscope_setup()")


def checked_setup(value: object, made_by: str) -> Mapping[str, object]:
    """Return the value as a setup, without the keys whose value is None.

    Raises:
        GradscopeError: It is no dict, or has unknown keys.
    """
    if not isinstance(value, Mapping):
        raise GradscopeError(
            f"{made_by} returned {type(value).__name__}, expected a dict",
            help="return dict(model=..., batch=..., loss_fn=..., optimizer=...)",
        )
    for key in value:
        if key not in SETUP_KEYS:
            raise GradscopeError(
                f"{made_by} returned the unknown key {key!r}",
                help=did_you_mean(str(key), SETUP_KEYS) or f"the keys are {', '.join(SETUP_KEYS)}",
            )
    return {str(key): item for key, item in value.items() if item is not None}


def clip_norm_of(setup: Mapping[str, object]) -> float | None:
    """Return the maximum gradient norm of a setup, None if it has none.

    Raises:
        GradscopeError: It is not a number above zero.
    """
    value = setup.get("clip_grad_norm")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise GradscopeError(
        f"`clip_grad_norm` of the setup is {value!r}, expected a number above zero",
        help="omit it if nothing is clipped",
    )
