"""torch's compiler: what of a script runs under it, and how it stays away from gradscope's code.

Inside a compiled function the compiler follows every function that is called, and evaluates every
Python frame that it does not follow. Marked functions are neither followed nor evaluated: a
compiled script has the graphs, guards and messages that it has without gradscope. The marks are an
attribute that the compiler asks functions for and a flag on their code. Nothing of the compiler is
imported.
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

_frames = torch._C._dynamo.eval_frame

_Hook = TypeVar("_Hook", bound=Callable[..., object])

_PACKAGES = ("gradscope.capture.", "gradscope.launch.", "gradscope.step_capture.")
"""What of gradscope runs while a script does."""

_with_those_below: set[int] = set()
"""By `id`: code of functions, which live as long as the process."""

_FOLLOWED_INSTEAD = "_torchdynamo_inline"
"""The attribute under which a function names another one that is compiled in its place."""


def follow_original(ours: Callable[..., Any], original: Callable[..., Any]) -> None:
    """Let the compiler follow the original of a function that is wrapped.

    Frames below that of the wrapper are the compiler's: they would be without gradscope, too.
    """
    setattr(ours, _FOLLOWED_INSTEAD, original)
    skip_frame(ours)


def skip_frame(ours: Callable[..., Any]) -> None:
    """Keep the compiler from a function's frame; those below are the compiler's."""
    _skip(_code_of(ours), below=False)


def untraced(hook: _Hook) -> _Hook:
    """Return a hook of which the compiler sees nothing, nor of what it calls."""
    setattr(hook, _FOLLOWED_INSTEAD, _nothing)
    _skip(_code_of(hook), below=True)
    return hook


def unfollowed(function: _Hook) -> _Hook:
    """Return a function whose frames, and those below, are not compiled."""
    _skip(_code_of(function), below=True)
    return function


def unfollow_package() -> None:
    """Do the same for every function of gradscope's that is there by now.

    The frames below are not meant: some of these functions call functions of the script's.
    """
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_PACKAGES):
            for code in _codes_in(module):
                _skip(code, below=False)


def _codes_in(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of each function that a module's file defines."""
    waiting: list[object] = [one for one in vars(module).values() if _is_of(one, module)]
    while waiting:
        match waiting.pop():
            case type() as made:
                waiting += vars(made).values()
            case staticmethod(__func__=one) | classmethod(__func__=one) | property(fget=one):
                waiting.append(one)
            case FunctionType() as function:
                waiting.append(inspect.unwrap(function).__code__)
            case CodeType(co_filename=file) as code if file == module.__file__:
                yield code
                waiting += code.co_consts


def _is_of(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _nothing(*args: object, **kwargs: object) -> None:
    """Stand in for a hook, where the compiler follows a call of it."""


def _skip(code: CodeType, *, below: bool) -> None:
    if below:
        _with_those_below.add(id(code))
    elif id(code) in _with_those_below:
        return
    skip, default = _frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT
    strategy = _frames._FrameExecStrategy(skip, skip if below else default)
    _frames.set_code_exec_strategy(code, strategy)


def _code_of(function: Callable[..., Any]) -> CodeType:
    code: CodeType = function.__code__
    return code


def is_compiled(model: nn.Module) -> bool:
    """Return whether the model, or a module in it, was compiled."""
    return any(
        hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        for module in model.modules()
    )


@unfollowed
def is_traced() -> bool:
    """Return whether code is being compiled, exported, traced or captured, and not run.

    This is asked at every call that is watched: it is one function, and reads flags.
    """
    if torch.compiler._is_compiling_flag or torch._C._is_tracing():
        return True
    return torch.cuda._initialized and is_in_cuda_graph()


@unfollowed
def is_in_cuda_graph() -> bool:
    """Return whether what runs goes to a CUDA graph: nothing has numbers, and none may be read."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def may_run_compiled() -> bool:
    """Return whether anything was given to torch's compiler in this process."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = {} if frames is None else frames.cached_backends
    return any(backend is not None for backend in backends.values())


def compiles_backward() -> bool:
    """Return whether a backward that begins now is compiled, with every hook in its graph."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    return compiler is not None and compiler.compiled_autograd_enabled


@contextmanager
def watchable() -> Iterator[None]:
    """Make what is compiled run eagerly, if there can be anything compiled in this process.

    The compiler would trace through the modes and hooks that watch the forward, warn of them, and
    break functions up. Without compiled code nothing is changed, nor imported.
    """
    if not may_run_compiled():
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")
        yield
