"""Records which line of code made which part of the graph."""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import FrameType
from typing import Protocol

from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

from gradscope.capture.compiler import follow_original
from gradscope.capture.source.lines import Caller, Line, hands_on_input, sequence_number
from gradscope.capture.step.cuts import CutTracker
from gradscope.capture.step.graph import Edge, edges
from gradscope.capture.step.views import note_views


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


class SiteMode(TorchFunctionMode):
    """Records the line of every torch call that makes nodes.

    Nested calls between torch functions are recorded as one, the outermost. Nodes made without a
    torch function, for example by a custom function whose forward calls none, have no line here.
    """

    def __init__(
        self, caller: Caller, cuts: CutTracker, observers: tuple[Observer, ...] = ()
    ) -> None:
        super().__init__()
        self._observers = Observers(observers)
        self._observed = self._observers.names
        self._caller = caller
        self._cuts = cuts
        self._next = sequence_number()
        self.starts: list[int] = []
        """First number of each span, ascending."""
        self.ends: list[int] = []
        self.lines: list[Line | None] = []
        self.hooked: list[Edge] = []
        """Tensors with a registered hook, which may change their gradient."""
        self.earlier: SiteMode | None = None
        """Observer of the earlier forward, which knows the lines of its nodes."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call the function, and record its line if autograd's counter advanced."""
        start = self.began(func, args, sys._getframe(1))
        result = func(*args, **kwargs) if kwargs else func(*args)
        self.returned(func, args, kwargs, result, start, sys._getframe(1))
        return result

    def has_nodes_without_line(self) -> bool:
        """Return whether nodes were made since the last call, outside any observed call."""
        return sequence_number() != self._next

    def began(self, func: Callable[..., object], args: tuple[object, ...], frame: FrameType) -> int:
        """Return the sequence number of the first node of a call that a frame makes."""
        start = sequence_number()
        if start != self._next:
            of_apply = self._caller.line_of_apply(frame)
            # `Function.apply` makes its node after the forward, outside of any torch function.
            if of_apply is None and hands_on_input(func, args):
                of_apply = self._caller.line(frame)
            self.starts.append(self._next)
            self.ends.append(start)
            self.lines.append(of_apply)
            self._next = start
        return start

    def returned(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        start: int,
        frame: FrameType,
    ) -> None:
        """Observe a call that has returned.

        Args:
            func: The called function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            result: Its result.
            start: The number that `began` returned for it.
            frame: The frame that made the call.
        """
        end = sequence_number()
        line = None
        name = getattr(func, "__name__", "")
        # The counter moves only if autograd made a node: comparing it costs less than a search in
        # the result for new `grad_fn`s, and sees in-place operations too.
        if end != start:
            line = self._caller.line(frame)
            self.starts.append(start)
            self.ends.append(end)
            self.lines.append(line)
            self._next = end
            note_views(func, name, args, result)
            self._cuts.see_nodes(func, name, args, kwargs, result, (start, end))
        else:
            self._cuts.see(func, args, kwargs, result)
        if name in self._observed:
            for observer in self._observers.of(name, args, kwargs):
                line = line or self._caller.line(frame)
                observer.see(name, args, kwargs, result, line)
        elif name == "register_hook":
            self.hooked += edges(args[:1])

    def find(self, sequence: int) -> Line | None:
        """Return the line that made the node with this number."""
        position = bisect_right(self.starts, sequence) - 1
        if position < 0:
            return None if self.earlier is None else self.earlier.find(sequence)
        return self.lines[position] if sequence < self.ends[position] else None


follow_original(SiteMode.__torch_function__, BaseTorchFunctionMode.__torch_function__)
