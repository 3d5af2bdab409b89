"""Observes calls in the forward: checkpoints, and those that disable gradients."""

import math
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.compiler import is_traced
from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Caller, Line, created, is_users
from gradscope.capture.step.cuts import Cut, CutTracker
from gradscope.capture.step.graph import behind, edges, tensors

_NAME = "_checkpoint_without_reentrant_generator"


class Unrepeated(NamedTuple):
    """A line with checkpoints that draw random numbers and do not keep the generator's state."""

    line: Line | None
    calls: int


class CheckpointObserver(Observer):
    """Records checkpoints with `preserve_rng_state=False` whose forward draws random numbers."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._calls: dict[Line | None, int] = {}

    @property
    def found(self) -> tuple[Unrepeated, ...]:
        """The lines, in the order of their first calls."""
        return tuple(Unrepeated(line, calls) for line, calls in self._calls.items())

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Observe the checkpoints of the block."""
        original = getattr(torch.utils.checkpoint, _NAME, None)
        if original is None:  # its name is not public
            yield
            return

        def generator(fn: Any, preserve: Any = True, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            made = original(fn, preserve, *args, **kwargs)
            if preserve or is_traced():
                return made
            line = self._caller.line(sys._getframe(1))
            # torch only calls `next`, `throw` and `close` on it.
            return _Watched(made, lambda: self._note(line))

        setattr(torch.utils.checkpoint, _NAME, generator)
        try:
            yield
        finally:
            if getattr(torch.utils.checkpoint, _NAME) is generator:
                setattr(torch.utils.checkpoint, _NAME, original)

    def _note(self, line: Line | None) -> None:
        self._calls[line] = self._calls.get(line, 0) + 1


class _Watched:
    """A checkpoint's generator, which torch advances before the forward and after it."""

    def __init__(self, made: Generator[None, None, None], drew: Callable[[], None]) -> None:
        self._made, self._drew = made, drew
        self._before: list[Tensor] | None = None

    def __iter__(self) -> "_Watched":
        return self

    def __next__(self) -> None:
        if self._before is not None and not _are_equal(self._before, _random_states()):
            self._drew()
        try:
            next(self._made)
        finally:
            self._before = _random_states()

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Pass the forward's exception on."""
        return self._made.throw(*error)

    def close(self) -> None:
        """End the checkpoint."""
        self._made.close()


def _random_states() -> list[Tensor]:
    """Return the states of the CPU's generator and of the current GPU's."""
    with DisableTorchFunction():
        states = [torch.default_generator.get_state()]
        # Reading the state would otherwise start CUDA, or end the capture of a CUDA graph.
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            states.append(torch.cuda.get_rng_state())
    return states


def _are_equal(before: list[Tensor], after: list[Tensor]) -> bool:
    with DisableTorchFunction():
        return all(map(torch.equal, before, after))


_CHECKPOINT = torch.utils.checkpoint.CheckpointFunction.forward.__code__


class SwitchObserver(Observer):
    """Records where gradients are disabled: `with torch.no_grad():` and the like.

    A reentrant checkpoint disables them too, around the function that it runs.
    """

    names = frozenset({"_set_grad_enabled"})

    def __init__(self, cuts: CutTracker) -> None:
        self._cuts = cuts
        self._lines: list[tuple[int, Line | None]] = []
        """Each line with the number of times that cuts were met before it."""
        self._checkpoints: list[FrameType] = []
        """Running reentrant checkpoints, innermost last."""
        self._is_on = True
        """Whether gradients are enabled around them. Inside, they are always disabled."""

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record the line that disables gradients."""
        is_on = bool(args and args[0])
        frame = _frame_of_checkpoint()
        if frame is not None:
            self._see_checkpoint(frame, line)
        elif not self._checkpoints:
            self._is_on = is_on
        if not is_on and (frame is None or frame in self._checkpoints):
            self._lines.append((self._cuts.meetings, line))

    def _see_checkpoint(self, frame: FrameType, line: Line | None) -> None:
        """Record the start or end of a checkpoint's run."""
        if frame in self._checkpoints:
            # The frame of a checkpoint switches gradients off and on again: the second time it is
            # leaving.
            self._checkpoints.remove(frame)
            if not self._checkpoints:
                self._cuts.checkpoint = None
            return
        if not self._checkpoints and self._is_on and not edges(frame.f_locals.get("args")):
            self._cuts.checkpoint = line
        self._checkpoints.append(frame)

    def before(self, cut: Cut) -> Line | None:
        """Return the line that had disabled gradients when a cut was last met.

        A policy acts without gradients before its loss is computed: the last one is of the loss.
        """
        lines = [line for known, line in self._lines if known < cut.met]
        return lines[-1] if lines else None


def _frame_of_checkpoint() -> FrameType | None:
    """Return the frame of a reentrant checkpoint, if it switches gradients on or off."""
    # A reentrant checkpoint runs its function under `no_grad` in the forward, and once more with
    # gradients in backward. What it disables is therefore no cut, unless none of its inputs
    # requires grad: then autograd never calls its backward.
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != torch.utils.checkpoint.__file__:
        if is_users(frame.f_code):
            return None
        frame = frame.f_back
    return frame if frame is not None and frame.f_code is _CHECKPOINT else None


class BackwardCall(NamedTuple):
    """A backward call of the user's code that freed the nodes it went through."""

    name: str
    """`backward` or `grad`."""
    line: Line | None
    freed: frozenset[int]
    """Sequence numbers of the freed nodes."""


class BackwardObserver(Observer):
    """Records backward calls inside the forward, and the nodes that they freed."""

    names = frozenset({"backward", "grad"})

    def __init__(self) -> None:
        self.count = 0
        """Number of backward calls."""
        self.calls: list[BackwardCall] = []
        """Backward calls that did not keep the graph."""
        self.earlier: BackwardObserver | None = None
        """Observer of the earlier calls, if there is one."""

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Count a call, and record it unless it keeps the graph."""
        self.count += 1
        kwargs = kwargs or {}
        # Backward frees the saved tensors of every node that it visits, also of those that belong
        # to a graph which another loss shares.
        retain, create = kwargs.get("retain_graph"), kwargs.get("create_graph")
        # `retain_graph` defaults to `create_graph`.
        if create if retain is None else retain:
            return
        with DisableTorchFunction():
            roots = [tensor.grad_fn for tensor in tensors(args[:1]) if isinstance(tensor, Tensor)]
            self.calls.append(BackwardCall(name, line, _numbers(roots)))

    def reach_back(self) -> None:
        """Include the calls of the earlier observer."""
        if self.earlier is not None:
            self.calls = self.earlier.calls + self.calls

    def that_freed(self, number: int) -> BackwardCall | None:
        """Return the first call that went through a node."""
        return next((call for call in self.calls if number in call.freed), None)


def _numbers(roots: list[Node | None]) -> frozenset[int]:
    numbers = map(created, behind(roots, most=math.inf))
    return frozenset(number for number in numbers if number is not None)
