"""Keeps inputs of a script's custom functions, and checks the functions once the script is over.

A script's code must not be called during its training: it may count its calls, or hold a state.
Therefore the captured steps only copy a few inputs, and the functions run after the last line.
"""

import io
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from types import CodeType, FrameType

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd import Function

from gradscope.capture.observed_calls import Args
from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import INSTALLED, Caller, Line, is_users_file
from gradscope.capture.source.statements import function_of
from gradscope.capture.training.guard import without_dispatch_modes
from gradscope.probes.forward.custom_functions import (
    Applications,
    NotKeptError,
    checked,
    first_input,
)
from gradscope.probes.snapshot import RandomStates
from gradscope.recording.evidence.failures import CustomFunctionRecord

_MOST_BYTES = 32 * 1024 * 1024
"""Maximum memory of all copies."""

_DEEPEST = 6
"""Number of callers among which the forward of a function is searched."""

_SECONDS = 10.0
"""Seconds after which no further function is checked."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice)
_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)

_WORLD_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""Variables by which launchers tell a process how many there are."""

_VARIABLE_ARGUMENTS = 0x04
"""Flag of code with `*args`."""


class FunctionInputs:
    """The inputs of the script's own custom functions in captured steps.

    Functions of installed packages are left out: they may communicate with other processes. In a
    job of several ranks none is checked, because a collective would wait for the other ranks.
    """

    def __init__(self) -> None:
        self._codes: dict[int, tuple[CodeType, type[Function]]] = {}
        """By `id` of the code of a forward: the code, and its class."""
        self._applications: dict[type[Function], Applications] = {}
        self._frames: dict[type[Function], int] = {}
        """By function: `id` of the frame of the last call."""
        self._bytes = 0
        self._lines = Caller()
        self._has_ranks = any(_number(name) > 1 for name in _WORLD_SIZES)

    def learn(self) -> None:
        """Look for new functions before a step is captured."""
        self._has_ranks = self._has_ranks or (dist.is_available() and dist.is_initialized())
        if self._has_ranks:
            return
        for function in _subclasses(Function):
            # By `vars`, because an inherited forward belongs to the class that defines it.
            code = getattr(_innermost(vars(function).get("forward")), "__code__", None)
            if code is None or id(code) in self._codes:
                continue
            file = code.co_filename
            if is_users_file(file) and not any(part in file for part in INSTALLED):
                self._codes[id(code)] = (code, function)

    def began(self, frame: FrameType) -> None:
        """See a call of torch, by its caller. The first one in a forward shows its inputs."""
        # autograd runs each forward without gradients.
        if not self._codes or torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return
        caller: FrameType | None = frame
        for _ in range(_DEEPEST):
            if caller is None:
                return
            known = self._codes.get(id(caller.f_code))
            if known is not None:
                self._see(caller, known[1])
                return
            caller = caller.f_back

    def _see(self, frame: FrameType, owner: type[Function]) -> None:
        args = _arguments(frame)
        # Subclasses share an inherited forward: the context tells which one runs.
        function = (function_of(args[0]) if args else None) or owner
        # The forward goes on calling torch: only its first call shows the inputs unchanged.
        if self._frames.get(function) == id(frame):
            return
        self._frames[function] = id(frame)
        applications = self._applications.get(function)
        if applications is None:
            applications = Applications(function, self._kept, skip_reason="its inputs are unknown")
            self._applications[function] = applications
        with DisableTorchFunction(), torch.no_grad(), without_dispatch_modes():
            applications.note(args[first_input(function) :], self._lines.line_of_apply(frame))

    def _kept(self, args: Args) -> tuple[object, ...]:
        size = sum(tensor.nbytes for tensor in _tensors(args))
        if self._bytes + size > _MOST_BYTES:
            raise NotKeptError("its inputs are too large")
        kept = tuple(map(_copied, args))
        self._bytes += size
        return kept

    def check(self, site_of: Callable[[Line | None], int | None]) -> list[CustomFunctionRecord]:
        """Run the functions on the kept inputs, after the script's last line, and forget them.

        Args:
            site_of: Returns the index of a line's record.
        """
        found: list[CustomFunctionRecord] = []
        waiting, self._applications = list(self._applications.values()), {}
        self._codes.clear()
        if not waiting or self._has_ranks or (dist.is_available() and dist.is_initialized()):
            return found
        before, began = RandomStates.now(), time.perf_counter()
        # The script's own output is complete: what a forward prints now must not join it.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for applications in waiting:
                        if time.perf_counter() - began > _SECONDS:
                            applications.found.clear()
                            applications.skip_reason = "the functions before it take too long"
                        found.append(checked(applications, site_of))
            except KeyboardInterrupt:
                pass  # the script is over: it only ends the checks
            finally:
                before.restore()
        return found


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 1


def _subclasses(kind: type[Function]) -> Iterator[type[Function]]:
    # torch has no list of custom functions.
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _innermost(forward: object) -> object:
    """Return a forward without the decorators around it, such as `custom_fwd`."""
    forward = getattr(forward, "__func__", forward)
    while (inner := getattr(forward, "__wrapped__", None)) is not None:
        forward = inner
    return forward


def _arguments(frame: FrameType) -> tuple[object, ...]:
    """Return the arguments of a running call, as long as it has not changed its variables."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    if any(name not in values for name in names):
        return ()
    more = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][:1]
    has_more = code.co_flags & _VARIABLE_ARGUMENTS
    further = tuple(values.get(more[0], ())) if has_more else ()
    return (*(values[name] for name in names), *further)


def _tensors(arg: object) -> Iterator[Tensor]:
    if isinstance(arg, Tensor):
        yield arg
    elif isinstance(arg, tuple | list | set | dict):
        for one in arg.values() if isinstance(arg, dict) else arg:
            yield from _tensors(one)


def _copied(arg: object) -> object:
    """Return a copy of an argument that holds on to nothing of the script.

    Raises:
        NotKeptError: There is none.
    """
    if isinstance(arg, Tensor):
        if type(arg) not in (Tensor, torch.nn.Parameter) or not is_plain(arg):
            raise NotKeptError("an input is no plain tensor")
        # A copy, because the script may write to the tensor before the check.
        return arg.detach().clone()
    for kind in (tuple, list, set):
        if type(arg) is kind:
            return kind(map(_copied, arg))
    if type(arg) is dict:
        return {key: _copied(value) for key, value in arg.items()}
    if isinstance(arg, _OF_TORCH) or type(arg) in _PLAIN:
        return arg
    raise NotKeptError(f"an argument is an object of the script ({type(arg).__name__})")
