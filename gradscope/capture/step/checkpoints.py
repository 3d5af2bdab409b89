"""Observes checkpoints whose recomputation in backward draws other random numbers."""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.compiler import is_traced
from gradscope.capture.source.lines import Caller, Line

_NAME = "_checkpoint_without_reentrant_generator"


class Unrepeated(NamedTuple):
    """A line with checkpoints that draw random numbers and do not keep the generator's state."""

    line: Line | None
    calls: int


class CheckpointObserver:
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
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            states.append(torch.cuda.get_rng_state())
    return states


def _are_equal(before: list[Tensor], after: list[Tensor]) -> bool:
    with DisableTorchFunction():
        return all(map(torch.equal, before, after))
