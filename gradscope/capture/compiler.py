"""Support for torch's compiler: what it compiled, and how to keep it away from gradscope.

Inside a compiled function, the compiler traces every called function, and evaluates every Python
frame that it does not trace. Marked functions are neither traced nor evaluated: a compiled script
keeps the graphs, guards and messages that it has without gradscope. The marks are an attribute that
the compiler reads from functions, and a flag on their code. Nothing of the compiler is imported.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import torch
from torch import nn

from gradscope.target import members
from gradscope.target.members import plain

_frames = torch._C._dynamo.eval_frame
_compiler, _cuda, _is_tracing = torch.compiler, torch.cuda, torch._C._is_tracing

_Hook = TypeVar("_Hook", bound=Callable[..., object])

_PACKAGES = (
    "gradscope.capture.",
    "gradscope.frozen",
    "gradscope.launch.",
    "gradscope.step_capture.",
    "gradscope.target.members",
)
"""Packages and modules of gradscope that run while a script runs."""

_with_those_below: set[int] = set()
"""By `id`: code of functions that live as long as the process."""

_FOLLOWED_INSTEAD = "_torchdynamo_inline"
"""Attribute that names another function for the compiler to trace instead."""


def follow_original(ours: Callable[..., Any], original: Callable[..., Any]) -> None:
    """Let the compiler trace the original of a wrapped function.

    Frames below that of the wrapper are left to the compiler, as without gradscope.
    """
    setattr(ours, _FOLLOWED_INSTEAD, original)
    skip_frame(ours)


def skip_frame(ours: Callable[..., Any]) -> None:
    """Keep the compiler away from a function's frame, but not from the frames below."""
    _skip(_code_of(ours), below=False)


def untraced(hook: _Hook) -> _Hook:
    """Return a hook that the compiler does not see, nor anything that it calls."""
    setattr(hook, _FOLLOWED_INSTEAD, _nothing)
    _skip(_code_of(hook), below=True)
    return hook


def unfollowed(function: _Hook) -> _Hook:
    """Return a function whose frame, and the frames below, are not compiled."""
    _skip(_code_of(function), below=True)
    return function


def unfollow_package() -> None:
    """Keep the compiler away from the frames of every gradscope function imported so far.

    Frames below are not included: some of these functions call functions of the script.
    """
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_PACKAGES) and module not in _unfollowed_modules:
            _unfollowed_modules.add(module)
            for code in _codes_in(module):
                _skip(code, below=False)


_unfollowed_modules: set[ModuleType] = set()
"""Modules of the package whose frames the compiler leaves alone already."""


def _codes_in(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of each function defined in a module's file."""
    waiting: list[object] = [one for one in vars(module).values() if _is_of(one, module)]
    while waiting:
        match waiting.pop():
            case type() as made:
                waiting += vars(made).values()
            case staticmethod(__func__=one) | classmethod(__func__=one) | property(fget=one):
                waiting.append(one)
            case FunctionType() as function:
                # What `contextmanager` returns is a function of the standard library; ours is below
                # it.
                waiting.append(inspect.unwrap(function).__code__)
            case CodeType(co_filename=file) as code if file == module.__file__:
                yield code
                waiting += code.co_consts


def _is_of(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _nothing(*args: object, **kwargs: object) -> None:
    """Replace a hook where the compiler traces a call of it."""


def _skip(code: CodeType, *, below: bool) -> None:
    if below:
        _with_those_below.add(id(code))
    # `unfollow_package` also comes to marked functions, and must not weaken their marks.
    elif id(code) in _with_those_below:
        return
    skip, default = _frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT
    strategy = _frames._FrameExecStrategy(skip, skip if below else default)
    _frames.set_code_exec_strategy(code, strategy)


def _code_of(function: Callable[..., Any]) -> CodeType:
    code: CodeType = function.__code__
    return code


def is_compiled(model: nn.Module) -> bool:
    """Return whether the model, or a submodule, was compiled."""
    # `torch.compile(model)` wraps the model as `_orig_mod`, `model.compile()` sets an attribute.
    return any(
        plain(module) is not module or module._compiled_call_impl is not None
        for module in members.modules(model)
    )


@unfollowed
def is_traced() -> bool:
    """Return whether code is being compiled, exported, traced or captured, instead of run.

    It runs at every observed call. Therefore it is one function that only reads flags.
    """
    if _compiler._is_compiling_flag or _is_tracing():
        return True
    return _cuda._initialized and is_in_cuda_graph()


@unfollowed
def is_in_cuda_graph() -> bool:
    """Return whether a CUDA graph is being captured: tensors have no values, and reads fail."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def may_run_compiled() -> bool:
    """Return whether anything was passed to torch's compiler in this process."""
    # Looked up: its first import takes seconds, and code not imported compiles nothing.
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = {} if frames is None else frames.cached_backends
    return any(backend is not None for backend in backends.values())


def compiles_backward() -> bool:
    """Return whether a backward that starts now is compiled, together with its hooks."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    return compiler is not None and compiler.compiled_autograd_enabled


@contextmanager
def watchable() -> Iterator[None]:
    """Run compiled code eagerly inside the block, if this process can have any.

    The compiler would trace the modes and hooks that observe the forward, warn about them, and
    break graphs. Without compiled code, nothing is changed or imported.
    """
    if not may_run_compiled():
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")
        yield
