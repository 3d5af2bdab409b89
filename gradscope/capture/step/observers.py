"""Who wants to know of certain calls of torch functions during the forward."""

from collections.abc import Mapping
from functools import cache
from typing import Protocol

from gradscope.capture.source.lines import Line


class Witness(Protocol):
    """Sees calls of torch functions of certain names, as `mse_loss` or `add_`."""

    names: frozenset[str]
    """By `__name__` of the function."""

    def wants(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> bool:
        """Return whether a call of such a name is worth finding its line."""

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Take note of a call that has just returned; what is kept must not outlive the capture."""


class Witnesses:
    """Those who want to know, by the names of the functions."""

    def __init__(self, witnesses: tuple[Witness, ...]) -> None:
        self._witnesses = witnesses
        self._positions = _places_by_name(tuple(witness.names for witness in witnesses))
        self.names = self._positions.keys()
        """Of all functions that somebody wants to know of."""

    def of(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> list[Witness]:
        """Return who wants to know of a call of one of these names."""
        witnesses = [self._witnesses[position] for position in self._positions[name]]
        return [witness for witness in witnesses if witness.wants(name, args, kwargs)]


@cache
def _places_by_name(names: tuple[frozenset[str], ...]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(position for position, wanted in enumerate(names) if name in wanted)
        for name in frozenset[str]().union(*names)
    }
