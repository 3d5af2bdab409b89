"""What of a model is under `torch.compile`, where modes and hooks cannot follow."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gradscope.capture.untraced import unfollowed


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
