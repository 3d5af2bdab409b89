"""Observers of certain calls of torch functions during the forward."""

from collections.abc import Mapping
from functools import cache
from typing import Protocol

from gradscope.capture.source.lines import Line


class Observer(Protocol):
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


class Observers:
    """Observers by the names of their functions."""

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        self._positions = _positions_by_name(tuple(observer.names for observer in observers))
        self.names = self._positions.keys()
        """Names of all observed functions."""

    def of(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> list[Observer]:
        """Return the observers of a call with one of these names."""
        observers = [self._observers[position] for position in self._positions[name]]
        return [observer for observer in observers if observer.wants(name, args, kwargs)]


@cache
def _positions_by_name(names: tuple[frozenset[str], ...]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(position for position, wanted in enumerate(names) if name in wanted)
        for name in frozenset[str]().union(*names)
    }
