"""Records which line of code made which part of the graph."""

import sys
from bisect import bisect_right
from collections.abc import Iterable
from types import (
    FrameType,
)

from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

from gradscope.capture.compiler import follow_original
from gradscope.capture.observed_calls import Args, Function, Kwargs, Observer, Observers
from gradscope.capture.source.lines import Caller, Line, hands_on_input, sequence_number
from gradscope.capture.step.cuts import CutTracker
from gradscope.capture.step.graph import Edge, edges
from gradscope.capture.step.views import note_views


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
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs = None
    ) -> object:
        """Call the function, and record its line if autograd's counter advanced."""
        start = self.began(func, args, sys._getframe(1))
        result = func(*args, **kwargs) if kwargs else func(*args)
        self.returned(func, args, kwargs, result, start, sys._getframe(1))
        return result

    def has_nodes_without_line(self) -> bool:
        """Return whether nodes were made since the last call, outside any observed call."""
        return sequence_number() != self._next

    def began(self, func: Function, args: Args, frame: FrameType) -> int:
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
        func: Function,
        args: Args,
        kwargs: Kwargs,
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


# The compiler runs a mode's function for each call that it traces.
follow_original(SiteMode.__torch_function__, BaseTorchFunctionMode.__torch_function__)
