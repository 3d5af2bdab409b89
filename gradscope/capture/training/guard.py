"""Replaces functions of torch, keeps gradscope's faults off the script, and postpones signals."""

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch._C import DisableTorchFunction, _len_torch_function_stack
from torch.utils._python_dispatch import _disable_current_modes

from gradscope.capture.compiler import follow_original, skip_frame, unfollowed
from gradscope.capture.interpreter import uncounted
from gradscope.errors import GradscopeError

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM")
"""Signals whose handlers usually raise: for Ctrl-C, the end of a job, and a time limit."""

_NUMBERS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def is_interruption(error: BaseException) -> bool:
    """Return whether a signal handler raised the exception, for example for a time limit.

    It can interrupt any code, and is meant for the script.
    """
    # Looked up at the time: a library may set its handler in the middle of the script.
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def _code(handler: object) -> CodeType | None:
    call = handler if hasattr(handler, "__code__") else getattr(handler, "func", None)
    if call is None and callable(handler):
        call = type(handler).__call__
    code = getattr(call, "__code__", None)
    return code if isinstance(code, CodeType) else None


Parameters = ParamSpec("Parameters")

Result = TypeVar("Result")

_NO_MODES = nullcontext()


class Guard:
    """Runs gradscope's part of an observed call, one thread at a time.

    Modes and tensor subclasses of the script do not see its tensor operations.

    Args:
        fail: Called with an exception of gradscope's, after recording has ended.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._lock = threading.RLock()
        self._changing: dict[int, int] = {}
        """By thread: number of nested calls that change gradients."""
        self.repeating: int | None = None
        """Thread in which a backward changes them that is only compared; None if none runs."""
        self._depth = 0
        """Number of nested parts that run."""
        self.spend: Callable[[float], None] = lambda _: None
        """Called with the seconds that each part took."""
        self._due: list[Callable[[], None]] = []
        self.active = True
        """False once recording has ended, and in forked processes."""
        # A forked child shares the recording's file with its parent: only one may write.
        os.register_at_fork(after_in_child=self._release)

    @unfollowed
    def run(
        self,
        part: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result | None:
        """Return the result of a part, None if recording has ended."""
        with self._lock:
            self._depth += 1
            began = perf_counter()
            try:
                result = self._run(part, *args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.spend(perf_counter() - began)
            if not self._due or self._depth:
                return result
            due, self._due = self._due, []
        for one in due:
            self._do(one)
        return result

    def quickly(
        self,
        part: Callable[..., Result],
        *args: object,
    ) -> Result | None:
        """Run a part that calls no operation of torch, in the thread that makes the steps."""
        if not self.active:
            return None
        try:
            # Entering the context costs more than most of these parts.
            if not _len_torch_function_stack():
                return part(*args)
            with DisableTorchFunction():
                return part(*args)
        except Exception as error:
            self.active = False
            self._fail(error)
            if is_interruption(error):
                raise
            return None

    def later(self, callback: Callable[[], None]) -> None:
        """Call a function as soon as the current part has ended: it may raise."""
        self._due.append(callback)

    def _do(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except BaseException:
            self.leave_change()  # the call that follows the part is not made
            raise

    def _run(
        self,
        part: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result | None:
        if not self.active:
            return None
        try:
            if self._is_busy_elsewhere() and not self._is_within_backward():
                raise GradscopeError(
                    "several threads train at the same time, which is not supported"
                )
            if torch._C._len_torch_dispatch_stack():
                with DisableTorchFunction(), _disable_current_modes():
                    return part(*args, **kwargs)
            with DisableTorchFunction():  # without the other context, half as expensive
                return part(*args, **kwargs)
        except Exception as error:
            self.active = False
            self._fail(error)
            if is_interruption(error):
                raise
            return None

    def glance(
        self,
        part: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result | None:
        """Run a part that other threads may skip, for example to observe an evaluation."""
        with self._lock:
            return None if self._is_busy_elsewhere() else self.run(part, *args, **kwargs)

    def enter_change(self) -> None:
        """Record, within a part, that this thread is about to run backward or to zero gradients.

        Meanwhile no other thread may read a gradient. torch sets and removes it without holding a
        Python lock, so a concurrent read could crash.
        """
        thread = threading.get_ident()
        self._changing[thread] = self._changing.get(thread, 0) + 1

    def leave_change(self) -> None:
        """Record that this is over, with or without an exception."""
        thread = threading.get_ident()
        left = self._changing.pop(thread, 1) - 1
        if left:
            self._changing[thread] = left

    def _is_busy_elsewhere(self) -> bool:
        if not self._changing and self.repeating is None:
            return False
        return not self._busy_threads() <= {threading.get_ident()}

    def _busy_threads(self) -> set[int]:
        """Return the threads that change gradients."""
        repeating = self.repeating
        return {*tuple(self._changing), *(() if repeating is None else (repeating,))}

    def _is_within_backward(self) -> bool:
        """Return whether this is an autograd thread, which runs the hooks of a backward."""
        # autograd runs hooks of device nodes in a thread of its own per device.
        return torch._C._current_graph_task_id() != -1 and len(self._busy_threads()) == 1

    def _release(self) -> None:
        self.active = False
        self._lock = threading.RLock()  # another thread may have held it


def without_dispatch_modes() -> AbstractContextManager[object]:
    """Hide the block from the script's own dispatch modes."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else _NO_MODES


Function = Callable[..., Any]


class _Replaced(NamedTuple):
    owner: object
    name: str
    original: object
    ours: object


class Patches:
    """The replaced functions. Each replacement looks like its original.

    `inspect.signature`, pickling by name, `isinstance`, warnings and torch's compiler see no
    difference.
    """

    def __init__(self) -> None:
        self._replaced: list[_Replaced] = []

    def wrap(self, owner: object, name: str, make: Callable[[Function], Function]) -> None:
        """Replace a function, or a method of a class, by what `make` returns for it.

        A method's replacement must first check `is_traced`, and then only call the original: the
        compiler can substitute a function by another one, but not a method.
        """
        # `getattr` would unwrap static methods and bind class methods.
        original = vars(owner)[name]
        ours = functools.wraps(original)(uncounted(make(original)))
        if isinstance(owner, type):
            skip_frame(ours)
        else:
            follow_original(ours, original)
        setattr(owner, name, ours)
        self._replaced.append(_Replaced(owner, name, original, ours))

    def put(self, owner: object, name: str, function: object) -> None:
        """Replace another name of a function that was wrapped already."""
        self._replaced.append(_Replaced(owner, name, vars(owner)[name], function))
        setattr(owner, name, function)

    def restore(self) -> None:
        """Restore everything. Functions that other code has wrapped since are left alone."""
        # In reverse, so that a function wrapped twice ends as it was.
        while self._replaced:
            replaced = self._replaced.pop()
            if vars(replaced.owner).get(replaced.name) is replaced.ours:
                setattr(replaced.owner, replaced.name, replaced.original)


@contextmanager
def postponed_signals(later: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Pass the calls of the script's signal handlers inside the block to `later`.

    Handlers run in the main thread only, between any two instructions. Where one raises, for
    example `KeyboardInterrupt`, the rest of the block would not run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {int(number): signal.getsignal(number) for number in _NUMBERS}

    def postpone(number: int, _: FrameType | None) -> None:
        handler = handlers[number]
        if callable(handler):
            later(lambda: _call(handler, number))

    replaced = [number for number, handler in handlers.items() if callable(handler)]
    try:
        for number in replaced:
            signal.signal(number, postpone)
        yield
    finally:
        for number in reversed(replaced):
            signal.signal(number, handlers[number])


def _call(handler: Callable[[int, FrameType], object], number: int) -> None:
    handler(number, sys._getframe())
