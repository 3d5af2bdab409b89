"""Calls of torch functions: what they are given, and who observes them."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch is not imported before the script imports it
    from gradscope.capture.source.lines import Line

Function = Callable[..., object]
Args = tuple[object, ...]
Kwargs = Mapping[str, object] | None
"""Keyword arguments as `__torch_function__` gets them: None without any."""


def argument(args: Args, kwargs: Kwargs, position: int, name: str) -> object:
    """Return an argument of a call, given by position or by name; None without it."""
    return args[position] if len(args) > position else (kwargs or {}).get(name)


def writes_in_place(name: str) -> bool:
    """Return whether an operation writes to its first argument, by torch's convention for names."""
    return name.endswith("_") and not name.endswith("__")


class Observer:
    """Observes calls of torch functions with certain names, such as `mse_loss` or `add_`."""

    names: frozenset[str]
    """`__name__`s of the observed functions."""

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether the line of a call should be looked up; always where calls are rare."""
        return True

    def see(
        self, name: str, args: Args, kwargs: Kwargs, result: object, line: "Line | None"
    ) -> None:
        """Record a call that has just returned. Nothing recorded may outlive the capture."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what may keep tensors alive, at the end of the capture."""


class Observers:
    """Observers by the names of their functions."""

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        self._positions = _positions_by_name(tuple(observer.names for observer in observers))
        self.names = self._positions.keys()
        """Names of all observed functions."""

    def of(self, name: str, args: Args, kwargs: Kwargs) -> list[Observer]:
        """Return the observers of a call with one of these names."""
        observers = []
        for position in self._positions[name]:
            observer = self._observers[position]
            if observer.wants(name, args, kwargs):
                observers.append(observer)
        return observers


@cache
def _positions_by_name(names: tuple[frozenset[str], ...]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(position for position, wanted in enumerate(names) if name in wanted)
        for name in frozenset[str]().union(*names)
    }
