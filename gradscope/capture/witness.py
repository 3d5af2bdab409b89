"""Who wants to know of certain calls of torch functions during the forward."""

from collections.abc import Mapping
from typing import Protocol

from gradscope.capture.lines import Line


class Witness(Protocol):
    """Sees calls of torch functions of certain names, as `mse_loss` or `add_`."""

    names: frozenset[str]
    """By `__name__` of the function."""

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Take note of a call that has just returned; what is kept must not outlive the capture."""


def by_name(witnesses: tuple[Witness, ...]) -> dict[str, tuple[Witness, ...]]:
    """Return who wants to know of which function."""
    names = {name for witness in witnesses for name in witness.names}
    return {name: tuple(one for one in witnesses if name in one.names) for name in names}
