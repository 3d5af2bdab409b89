"""The loss for which a script ended itself before any backward: `assert torch.isfinite(loss)`."""

import math
from collections.abc import Iterator
from traceback import walk_tb
from types import TracebackType

import torch
from torch import Tensor

from gradscope.capture.edges import is_old
from gradscope.capture.lines import is_users
from gradscope.capture.saved_tensors import has_storage


def broken_loss(traceback: TracebackType | None) -> tuple[str, Tensor] | None:
    """Return a number with a graph that is not finite, and the variable that holds it.

    Of several the one that is called a loss, in the innermost frame of the script's.
    """
    found = list(_broken(traceback))
    losses = [one for one in found if "loss" in one[0].lower()]
    return next(iter(losses or found), None)


def _broken(traceback: TracebackType | None) -> Iterator[tuple[str, Tensor]]:
    frames = [frame for frame, _ in walk_tb(traceback) if is_users(frame.f_code)]
    for frame in reversed(frames):
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, Tensor) and _is_broken_number(value):
                yield name, value


def _is_broken_number(tensor: Tensor) -> bool:
    if not (has_storage(tensor) and tensor.is_cpu and tensor.is_floating_point()):
        return False
    if tensor.numel() != 1 or not tensor.requires_grad or is_old(tensor):
        return False
    with torch.no_grad():
        return tensor.grad_fn is not None and not math.isfinite(float(tensor))
