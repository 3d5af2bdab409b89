"""How a kind of event declares the numbers that its events record."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar, overload

Value = TypeVar("Value")
Written = TypeVar("Written")


class _WithNumbers(Protocol):
    """An event, with its numbers by name."""

    @property
    def numbers(self) -> Mapping[str, float]: ...


class Recorded(Generic[Value, Written]):
    """A number of an event. Its name is that of the attribute."""

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, event: None, owner: type) -> Self: ...
    @overload
    def __get__(self, event: "_WithNumbers", owner: type) -> Value: ...
    def __get__(self, event: "_WithNumbers | None", owner: type) -> Self | Value:
        # Without an event, it is read from the class, for its meaning.
        return self if event is None else self._of(event.numbers.get(self.name))

    if TYPE_CHECKING:
        # The type that `named` takes for it: nothing sets a number of an event.
        def __set__(self, event: "_WithNumbers", value: Written) -> None: ...

    def _of(self, recorded: float | None) -> Value:
        raise NotImplementedError


class Number(Recorded[float | None, float | None]):
    """A number that may be missing: None if it was not measured."""

    if not TYPE_CHECKING:

        def __get__(self, event: "_WithNumbers | None", owner: type) -> object:
            # Rules read numbers hundreds of thousands of times: without a further call.
            return self if event is None else event.numbers.get(self.name)

    def _of(self, recorded: float | None) -> float | None:
        return recorded


class Count(Recorded[int, float]):
    """A count: 0 if it was not recorded."""

    def _of(self, recorded: float | None) -> int:
        return 0 if recorded is None else int(recorded)


class Flag(Recorded[bool, float]):
    """A yes or no, recorded as 1.0 or 0.0: no if it was not recorded."""

    def _of(self, recorded: float | None) -> bool:
        return recorded is not None and recorded >= 1.0
