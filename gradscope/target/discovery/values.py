"""Evaluates EXPR in an imported file, and calls factories without arguments."""

import inspect
from collections.abc import Callable, Mapping
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
"""The factory that is found by its name, and another name."""

_LITERALS: Mapping[object, str] = {int: "64", float: "0.1", bool: "True", str: "'name'"}


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
    literals = [_literal(parameter) for parameter in missing]
    if None in literals:
        return _factory_help(name, ", ".join(parameter.name for parameter in missing), option)
    given = ", ".join(f"{p.name}={text}" for p, text in zip(missing, literals, strict=True))
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


def _literal(parameter: inspect.Parameter) -> str | None:
    """Return an example value for a parameter; None if it is no literal."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None if "config" in parameter.name or parameter.name in ("args", "cfg") else "64"
    if isinstance(annotation, str):
        annotation = {kind.__name__: kind for kind in (int, float, bool, str)}.get(annotation)
    return _LITERALS.get(annotation)


def _call(function: Callable[..., object], expression: Expression, given: Arguments) -> object:
    signature = signature_of(function)
    try:
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
