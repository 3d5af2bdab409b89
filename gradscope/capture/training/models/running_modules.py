"""The modules that are running, read from the stack, and what wrappers of modules hold."""

from collections.abc import Container, Iterator
from types import FrameType

from torch import nn

from gradscope.target.wrappers import plain

_MODULE_FILE = nn.modules.module.__file__
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def outer_module(frame: FrameType, ignored: Container[int] = ()) -> nn.Module | None:
    """Return the outermost module whose forward is running, except the one being called.

    Args:
        frame: Frame of the call.
        ignored: Modules to ignore, by `id`.
    """
    outer, step = None, calling_frame(frame)
    while step is not None:
        if step.f_code.co_filename == _MODULE_FILE and step.f_code.co_name == "_call_impl":
            found = step.f_locals.get("self")
            outer = outer if id(found) in ignored else found
        step = step.f_back
    return outer


def calling_frame(frame: FrameType) -> FrameType | None:
    """Return the frame that calls the module whose call runs in a frame."""
    step: FrameType | None = frame
    while step is not None and step.f_code.co_filename == _MODULE_FILE:
        step = step.f_back
    return step


def wrapped(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module, what it wraps, and so on."""
    yield module
    while isinstance(module, _PARALLEL) or plain(module) is not module:
        module = module.module if isinstance(module, _PARALLEL) else plain(module)
        yield module
