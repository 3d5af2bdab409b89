"""What of a model is under `torch.compile`, where modes and hooks cannot follow."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def is_compiled(model: nn.Module) -> bool:
    """Return whether the model, or a module in it, was compiled."""
    return any(
        hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        for module in model.modules()
    )


def eager_functions() -> AbstractContextManager[object]:
    """Make compiled functions run eagerly, if there can be any in this process.

    The compiler would trace through the modes and hooks that watch the forward, warn of them, and
    break the function up. Without compiled functions nothing is changed, nor imported.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = {} if frames is None else frames.cached_backends
    if any(backend is not None for backend in backends.values()):
        return torch.compiler.set_stance("force_eager")
    return nullcontext()
