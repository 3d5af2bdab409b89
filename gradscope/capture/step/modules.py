"""Records module calls as spans of autograd's sequence counter.

Global forward hooks observe every called module; nothing is stored on a module. A node belongs to
the innermost call whose span contains its number.
"""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._C import DisableTorchFunction
from torch.nn.modules.module import (
    _global_forward_hooks_with_kwargs,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from gradscope.capture.compiler import is_traced, untraced
from gradscope.capture.observed_calls import Args
from gradscope.capture.source.lines import Caller, Forward, Line, OpenCall, sequence_number
from gradscope.capture.step.graph import Edge, edges, without_node

_FAST = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
"""Modules with a fast path in eval mode that rounds differently, and that torch never takes under a
torch function mode. The mode is removed while one of them runs; its lines are those of its call."""

_WRAPPER = "OptimizedModule"
"""The wrapper that `torch.compile` puts around a module. Run eagerly, it only forwards the call."""

_MOST_HELD = 2
"""Maximum number of calls held per model."""


@dataclass(slots=True)
class ModuleCall:
    """One call of a module."""

    module: nn.Module
    parent: int | None
    line: Line | None
    start: int
    inputs: list[Edge]
    end: int | None = None
    outputs: Sequence[Edge] = ()


class ModuleTracker:
    """Records every module call of this thread between `start` and `stop`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._thread = get_ident()
        self._handles: list[RemovableHandle] = []
        self._guards: dict[int, AbstractContextManager[None]] = {}
        self._open = caller.open_calls
        self._lines_of_wrapped: dict[int, Line | None] = {}
        """By `id` of a module that its wrapper is about to call."""
        self.calls: list[ModuleCall] = []
        self.holds_all = True
        """Whether the tensors of all calls are held, or only those of each model's last ones. An
        evaluation between two steps, for example, would otherwise hold the graphs of all its
        batches."""
        self._held: dict[int, list[int]] = {}
        """By `id` of a model: its calls whose tensors are held."""

    def start(self) -> None:
        """Start recording."""
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            # always_call: also if the forward raises, which must close the call.
            register_module_forward_hook(self._leave, with_kwargs=True, always_call=True),
        ]

    def stop(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
            # torch leaves this entry behind, and later takes it for a hook.
            _global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []
        self._open.clear()

    @untraced
    def _enter(self, module: nn.Module, args: Args) -> None:
        # Global hooks run in every thread, for example in those of `nn.DataParallel`.
        if is_traced() or get_ident() != self._thread:
            return
        line = self._caller.line_of_module_call()
        # By name, because importing the class would import the compiler.
        if type(module).__name__ == _WRAPPER:
            self._lines_of_wrapped[id(module._orig_mod)] = line
            return
        parent = self._open[-1].number if self._open else None
        if parent is None and not self.holds_all:
            self._begin_forward(module)
        if self._lines_of_wrapped:
            # The line of a wrapper is that of its inner call, whose own caller is inside torch.
            line = self._lines_of_wrapped.pop(id(module), None) or line
        # Global hooks get no keyword arguments before the forward, which may change them.
        inputs = edges(args or keyword_arguments(sys._getframe(1)))
        number = len(self.calls)
        self._open.append(OpenCall(number, line, torch.is_grad_enabled()))
        self.calls.append(ModuleCall(module, parent, line, sequence_number(), inputs))
        if not module.training and isinstance(module, _FAST):
            # Entered by hand, because it ends in another hook.
            guard: AbstractContextManager[None] = DisableTorchFunction()
            guard.__enter__()
            self._guards[number] = guard

    def _begin_forward(self, model: nn.Module) -> None:
        """Hold the tensors of the starting call, and release those of an old one."""
        held = self._held.setdefault(id(model), [])
        held.append(len(self.calls))
        if len(held) > _MOST_HELD:
            position = held.pop(0)
            self._without_nodes(self.calls[position])
            while position + 1 < len(self.calls) and self.calls[position + 1].parent is not None:
                position += 1
                self._without_nodes(self.calls[position])
        self._caller.forward = Forward(id(model), held[-1], held[0])

    @staticmethod
    def _without_nodes(call: ModuleCall) -> None:
        call.inputs = [without_node(edge)._replace(leaf=None) for edge in call.inputs]
        call.outputs = [without_node(edge) for edge in call.outputs]

    @untraced
    def _leave(
        self,
        module: nn.Module,
        args: Args,
        *kwargs_and_output: Any,  # noqa: ANN401
    ) -> None:
        if is_traced() or get_ident() != self._thread:
            return
        if type(module).__name__ == _WRAPPER:
            return
        # A forward that raised may not have come here: its call is closed with the next outer one.
        while self._open:
            number = self._open.pop().number
            call = self.calls[number]
            if self._guards and (guard := self._guards.pop(number, None)) is not None:
                guard.__exit__(None, None, None)
            call.end = sequence_number()
            if call.module is module:
                if len(kwargs_and_output) == 2:  # false after an exception
                    kwargs, output = kwargs_and_output
                    if args and kwargs:
                        call.inputs += edges(tuple(kwargs.values()))
                    call.outputs = edges(output)
                return

    def release(self) -> None:
        """Release every tensor that a call got or returned."""
        for call in self.calls:
            call.inputs, call.outputs = [], []

    def with_earlier(self, earlier: "ModuleTracker") -> "ModuleTracker":
        """Return a tracker that also contains the earlier calls, after its own."""
        both, own = copy(self), len(self.calls)
        both.calls = self.calls + [
            replace(call, parent=None if call.parent is None else call.parent + own)
            for call in earlier.calls
        ]
        return both

    def innermost(self) -> "InnermostCall":
        """Return the lookup from a node's number to the innermost call around it."""
        return InnermostCall(self.calls)


def keyword_arguments(frame: FrameType) -> tuple[object, ...]:
    """Return the keyword arguments of a module call, from the frame of its `_call_impl`."""
    kwargs = frame.f_locals.get("kwargs")
    return tuple(kwargs.values()) if isinstance(kwargs, dict) else ()


class InnermostCall:
    """Looks up the innermost call whose span holds a number."""

    def __init__(self, calls: list[ModuleCall]) -> None:
        self._starts: list[int] = []
        self._owners: list[int | None] = []
        self._open: list[int] = []
        # Calls of an earlier forward come last.
        # Autograd numbers the nodes of a thread in the order in which they are made. A call owns
        # the numbers between its start and its end, except those of the calls inside.
        for number, call in sorted(enumerate(calls), key=lambda item: item[1].start):
            self._close(calls, call.start)
            self._begin(call.start, number)
            self._open.append(number)
        self._close(calls, None)

    def _close(self, calls: list[ModuleCall], until: int | None) -> None:
        """Close the open calls that ended before a new one starts."""
        while self._open:
            end = calls[self._open[-1]].end
            if end is None or (until is not None and end > until):
                return
            self._open.pop()
            # What comes after an inner call belongs to the outer one again.
            self._begin(end, self._open[-1] if self._open else None)

    def _begin(self, start: int, owner: int | None) -> None:
        if self._starts and self._starts[-1] == start:
            self._owners[-1] = owner
        else:
            self._starts.append(start)
            self._owners.append(owner)

    def find(self, sequence: int) -> int | None:
        """Return the innermost call around the node with this number."""
        position = bisect_right(self._starts, sequence) - 1
        return self._owners[position] if position >= 0 else None
