"""Observes every torch call of a script during a capture, below all of the script's modes."""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import torch
from torch._C import DisableTorchFunction, _len_torch_function_stack
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode, _pop_mode, _push_mode
from torch.utils.hooks import RemovableHandle

from gradscope.capture.compiler import follow_original, is_traced
from gradscope.capture.interpreter import uncounted
from gradscope.capture.observed_calls import Args, Kwargs
from gradscope.capture.step.sites import SiteMode
from gradscope.capture.training.guard import (
    Function,
    Patches,
    is_interruption,
    without_dispatch_modes,
)
from gradscope.step_capture.called_from import CalledFrom
from gradscope.step_capture.forward_watch import ForwardWatch
from gradscope.step_capture.function_inputs import FunctionInputs

HANDING_ON = torch.overrides.handle_torch_function.__code__

_OWN = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep)


def handed_on(func: Function, frame: FrameType) -> Callable[..., object]:
    """Return the function that passed itself to a mode.

    Args:
        func: The function that the mode got.
        frame: Frame that called the mode.
    """
    caller = frame.f_back
    if frame.f_code is not HANDING_ON or caller is None:
        return func
    code, given = caller.f_code, getattr(func, "__code__", None)
    if given is code or not isinstance(given, CodeType) or given.co_filename.startswith(_OWN):
        return func
    # A function made anew cannot get the variables of an enclosing one.
    return func if code.co_freevars else _again(caller)


def _again(caller: FrameType) -> Callable[..., object]:
    """Return the function that runs in a frame, with its arguments there as defaults."""
    code, values = caller.f_code, caller.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    by_place, by_name = names[: code.co_argcount], names[code.co_argcount :]
    # `handle_torch_function` passes the public name, which the script may have replaced since.
    again = FunctionType(
        code, caller.f_globals, code.co_name, tuple(values.get(name) for name in by_place)
    )
    again.__kwdefaults__ = {name: values.get(name) for name in by_name}
    return again


_PACKAGE = str(Path(__file__).parents[1]) + os.sep

_BACKWARDS = frozenset({"backward", "grad"})

_GRADIENT = vars(torch._C.TensorBase)["grad"]

_PASSIVE = frozenset(
    {
        *(
            getattr(torch.Tensor, name).__get__
            for name in ("device", "dtype", "grad", "is_leaf", "layout", "requires_grad", "shape")
        ),
        *(
            getattr(torch.Tensor, name)
            for name in ("dim", "is_floating_point", "numel", "size", "stride")
        ),
        _GRADIENT.__set__,
    }
)
"""Frequent attribute reads that compute nothing and never warn."""

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

MOST_CALLS = 100_000
"""Maximum number of calls in a capture. Longer phases are evaluations, or preparations."""

MOST_WITHOUT_GRAD = 20_000
"""Number of calls under `no_grad` that a capture observes. Later ones are skipped."""


class _OfThread(threading.local):
    """State of each thread, which has its own stack of modes."""

    depth = 0
    """Number of nested calls through the mode: meanwhile torch takes it off the stack."""


class CaptureMode(TorchFunctionMode):
    """Passes the script's calls to the current observer, and otherwise does nothing.

    It lies at the bottom of the stack of modes: those that the script opens and closes are above.

    Args:
        fail: Called with an exception of gradscope's own. The script's call is not affected.
        functions: Keeps inputs of custom functions.
    """

    def __init__(self, fail: Callable[[Exception], None], functions: FunctionInputs) -> None:
        super().__init__()
        self._fail, self._functions = fail, functions
        self._sites: SiteMode | None = None
        self._values: ForwardWatch | None = None
        self._thread = 0
        self._process = os.getpid()
        self._own = _OfThread()
        self._calls = self._calls_without_grad = 0
        self._is_own: dict[str, bool] = {}
        self._call = CalledFrom()
        self._leaving: RemovableHandle | None = None
        self._asked = Patches()
        """Patches of functions that torch calls before it passes a backward to modes."""

    @property
    def is_observing(self) -> bool:
        """Whether calls of this thread are observed."""
        return self._sites is not None and self._is_here()

    def observe(self, sites: SiteMode, values: ForwardWatch) -> None:
        """Start observing the calls of this thread."""
        # Each thread has a stack of modes of its own.
        self._thread = threading.get_ident()
        if not self._is_in_stack():
            self._put_below()
        self._sites, self._values = sites, values
        self._calls = self._calls_without_grad = 0

    def stop_observing(self) -> None:
        """Stop observing."""
        self._call.clear()
        self._sites = self._values = None

    def remove(self) -> None:
        """Leave the stack of modes, if it is within reach."""
        self.stop_observing()
        if self._own.depth:
            self._leave_later()
            return
        if self._leaving is not None:
            self._leaving.remove()
            self._asked.restore()
            self._leaving = None
        if not self._is_in_stack():
            return  # in another thread's stack it does nothing any more
        # torch only pops the top of the stack, so the modes above are put back afterwards.
        above = [_pop_mode() for _ in range(_len_torch_function_stack())]
        for mode in reversed(above):
            if mode is not self:
                _push_mode(mode)

    def _leave_later(self) -> None:
        """Leave the stack before the next forward or backward: torch restores what it took off."""
        if self._leaving is None:
            self._leaving = register_module_forward_pre_hook(self._leave)
            # `Tensor.backward` and `autograd.backward` ask these before they call modes.
            self._asked.wrap(torch._tensor, "has_torch_function_unary", self._leave_before)
            self._asked.wrap(torch.autograd, "has_torch_function", self._leave_before)

    def _leave_before(self, original: Function) -> Function:
        """Return a function that leaves the stack before it asks whether there are modes."""

        def has_torch_function(asked: object) -> bool:
            if not is_traced():
                self._leave()
            return bool(original(asked))

        return has_torch_function

    def _leave(self, *_: object) -> None:
        is_within = is_traced() or self._own.depth or not self._is_here()
        if not is_within and self._sites is None:
            self.remove()

    def _put_below(self) -> None:
        modes = [_pop_mode() for _ in range(_len_torch_function_stack())][::-1]
        # torch expects the default device's mode at the very bottom.
        location = int(bool(modes) and modes[0] is _default_device())
        for mode in (*modes[:location], self, *modes[location:]):
            _push_mode(mode)

    def _is_in_stack(self) -> bool:
        if self._own.depth:
            return True
        get = torch._C._get_function_stack_at
        return any(get(position) is self for position in range(_len_torch_function_stack()))

    def _is_here(self) -> bool:
        return self._thread == threading.get_ident() and self._process == os.getpid()

    @uncounted
    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs = None
    ) -> object:
        """Call the function, and observe the call."""
        # Most calls of the mode are reads of attributes, so these return before anything else.
        if is_traced() or (func in _PASSIVE and self._is_nothing_new(func, args)):
            return func(*args, **kwargs) if kwargs else func(*args)
        sites, values = self._sites, self._values
        frame = sys._getframe(1)
        func = handed_on(func, frame)
        if self._is_gradscopes(frame.f_code.co_filename):
            return func(*args, **kwargs) if kwargs else func(*args)
        own = self._own
        if sites is None or values is None or self._is_of_long_evaluation(func):
            own.depth += 1
            try:
                return self._called(frame, func, args, kwargs)
            finally:
                own.depth -= 1
        start = 0
        own.depth += 1
        try:
            if not self._is_here():
                sites = None
            else:
                try:
                    # The script's subclasses and modes do not see this.
                    with DisableTorchFunction(), without_dispatch_modes():
                        self._functions.began(frame)
                        values.began(func, args, kwargs, frame)
                        start = sites.began(func, args, frame)
                except Exception as error:  # noqa: BLE001 - the script must not suffer from it
                    sites = None
                    self._end(error)
            result = self._called(frame, func, args, kwargs)
            # A backward called by the script may have ended the capture.
            if sites is not None and sites is self._sites:
                try:
                    with DisableTorchFunction(), without_dispatch_modes():
                        sites.returned(func, args, kwargs, result, start, frame)
                        values.returned(func, args, kwargs, result, frame)
                    self._count()
                except Exception as error:  # noqa: BLE001 - as above
                    self._end(error)
        finally:
            own.depth -= 1
        return result

    @uncounted
    def _called(self, frame: FrameType, func: Function, args: Args, kwargs: Kwargs) -> object:
        """Call a function from the script's own line."""
        if getattr(func, "__name__", "") in _BACKWARDS:  # its line is looked up from within
            return func(*args, **kwargs) if kwargs else func(*args)
        return self._call(_caller_of(frame), func, args, kwargs)

    def _is_nothing_new(self, func: Function, args: Args) -> bool:
        """Return whether a passive call adds nothing: no node was made since the last call."""
        if func == _GRADIENT.__get__:
            tensor = args[0]
            if type(tensor) not in _PLAIN or not tensor.is_leaf:  # type: ignore[attr-defined]
                return False  # torch warns about reading the gradient of a non-leaf
        return self._sites is None or not self._sites.has_nodes_without_line()

    def _is_of_long_evaluation(self, func: Function) -> bool:
        # The call that enables gradients again must be observed: it ends the evaluation.
        if torch.is_grad_enabled() or getattr(func, "__name__", "") == "_set_grad_enabled":
            return False
        self._calls_without_grad += 1
        return self._calls_without_grad > MOST_WITHOUT_GRAD

    def _count(self) -> None:
        self._calls += 1
        if self._calls > MOST_CALLS:
            self.stop_observing()

    def _end(self, error: Exception) -> None:
        self.stop_observing()
        self._fail(error)
        if is_interruption(error):
            raise error

    def _is_gradscopes(self, file: str) -> bool:
        is_own = self._is_own.get(file)
        if is_own is None:
            # Known by file: the comparison of paths would cost more than the rest of the call.
            is_own = self._is_own[file] = file.startswith(_PACKAGE)
        return is_own


def _default_device() -> object:
    """Return the mode that `torch.set_default_device` opened in this thread."""
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    return getattr(context, "device_context", None)


def _caller_of(frame: FrameType) -> FrameType:
    """Return the frame that called a function which passed itself to this mode."""
    if frame.f_code is HANDING_ON and frame.f_back is not None:
        return frame.f_back.f_back or frame
    return frame


follow_original(CaptureMode.__torch_function__, BaseTorchFunctionMode.__torch_function__)
