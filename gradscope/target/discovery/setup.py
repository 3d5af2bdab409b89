"""Reads the dict that `gradscope_setup()` returns."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from gradscope.errors import GradscopeError
from gradscope.target.discovery.importing import Source
from gradscope.target.discovery.values import build
from gradscope.target.user_code import did_you_mean

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
