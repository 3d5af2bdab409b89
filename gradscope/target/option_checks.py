"""Checks the options that describe a target: devices, dtypes, expressions, inputs."""

import re

from gradscope.errors import GradscopeError
from gradscope.options.checks import WrongValue, choice, did_you_mean, text, text_or_texts
from gradscope.target.notation import (
    FLOATING_TYPES,
    LOSS_NAMES,
    OPTIMIZERS,
    meant_device,
    meant_type,
    parse_expression,
    parse_input,
    parse_target,
)

_DEVICE = re.compile(r"[a-z][a-z0-9_]*(:\d+)?")


def device(value: object) -> str:
    """Return the name of a device; the machine need not have it."""
    name = text(value)
    meant = meant_device(name)
    if meant is not None or _DEVICE.fullmatch(name) is None:
        hint = "such as cpu, cuda or cuda:1" if meant is None else f"did you mean `{meant}`?"
        raise WrongValue(f"is not a device: `{name}`", help=hint)
    return name


def floating_type(value: object) -> str:
    """Return the name of a floating type, with or without `torch.` before it."""
    name = text(value)
    try:
        choice(*FLOATING_TYPES)(name.removeprefix("torch."))
    except WrongValue as error:
        meant = meant_type(name.removeprefix("torch."))
        hint = error.help if meant is None else f"did you mean `{meant}`?"
        raise WrongValue(error.wrong, help=hint) from None
    return name


def optimizer(value: object) -> str:
    """Return the name of a class in `torch.optim`, in any case.

    A name unlike all known ones passes: a newer torch may have it.
    """
    name = text(value)
    known = {one.lower(): one for one in OPTIMIZERS}
    if name.lower() in known:
        return name
    plain = name.rpartition(".")[2].replace("_", "").replace("-", "").lower()
    # Deferred: only errors need it.
    from difflib import get_close_matches

    close = get_close_matches(plain, known, n=1)
    if close or not name.isidentifier():
        hint = f"did you mean `{known[close[0]]}`?" if close else "such as adamw or sgd"
        raise WrongValue(f"is not a class of torch.optim: `{name}`", help=hint)
    return name


def expression(value: object) -> str:
    """Return a name, or a call with literal arguments."""
    return _parsed(text(value))


def loss(value: object) -> str:
    """Return the name of a loss, or an expression."""
    name = text(value)
    if name in LOSS_NAMES:
        return name
    try:
        return _parsed(name)
    except WrongValue as error:
        raise WrongValue(error.wrong, help=did_you_mean(name, LOSS_NAMES) or error.help) from None


def inputs(value: object) -> tuple[str, ...]:
    """Return one specification of an input, or several."""
    specs = text_or_texts(value)
    for spec in specs:
        try:
            parse_input(spec)
        except GradscopeError as error:
            wrong = f"is not an input: `{spec}`: {error.cause or error.what}"
            example = 'such as "8,3,32,32" or "ids=int64[0,100]:2,16"'
            raise WrongValue(wrong, help=example if error.cause else error.help) from None
    return specs


def target(value: object) -> str:
    """Return a target in valid notation; it need not exist."""
    spec = text(value)
    try:
        parse_target(spec)
    except GradscopeError as error:
        raise WrongValue(f"is not a target: {error.what}", help=error.help) from None
    return spec


def _parsed(value: str) -> str:
    try:
        parse_expression(value)
    except GradscopeError as error:
        raise WrongValue(f"is not a name in the file: {error.what}", help=error.help) from None
    return value
