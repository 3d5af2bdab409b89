"""Observers of certain calls of torch functions during the forward."""

from collections.abc import Mapping
from functools import cache
from typing import Protocol

from gradscope.capture.source.lines import Line


class Witness(Protocol):
    """Observes calls of torch functions with certain names, such as `mse_loss` or `add_`."""

    names: frozenset[str]
    """`__name__`s of the observed functions."""

    def wants(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> bool:
        """Return whether the line of a call should be looked up."""

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Record a call that has just returned. Nothing recorded may outlive the capture."""


class Witnesses:
    """Observers by the names of their functions."""

    def __init__(self, witnesses: tuple[Witness, ...]) -> None:
        self._witnesses = witnesses
        self._positions = _places_by_name(tuple(witness.names for witness in witnesses))
        self.names = self._positions.keys()
        """Names of all observed functions."""

    def of(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> list[Witness]:
        """Return the observers of a call with one of these names."""
        witnesses = [self._witnesses[position] for position in self._positions[name]]
        return [witness for witness in witnesses if witness.wants(name, args, kwargs)]


@cache
def _places_by_name(names: tuple[frozenset[str], ...]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(position for position, wanted in enumerate(names) if name in wanted)
        for name in frozenset[str]().union(*names)
    }
