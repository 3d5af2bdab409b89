"""Recognizes exceptions raised by gradscope's own code. They say nothing about the user's."""

from pathlib import Path
from traceback import walk_tb
from types import CodeType

import torch

from gradscope.capture.source.lines import is_users

_PACKAGE = f"{Path(__file__).parents[1]}/"

_ENGINE = torch.autograd.graph._engine_run_backward.__code__

_HANDING_ON = frozenset({"__torch_function__", "_called", "run_backward"})
"""gradscope functions that call what the user's code called, and pass its exceptions on."""


def is_own_fault(raised: BaseException) -> bool:
    """Return whether a gradscope hook, compiled or not, ended a backward."""
    traced = getattr(raised, "real_stack", None)  # frames of torch's compiler
    if traced and traced[-1].filename.startswith(_PACKAGE):
        return True
    codes = [frame.f_code for frame, _ in walk_tb(raised.__traceback__)]
    if _ENGINE not in codes:
        return False
    inside = codes[len(codes) - codes[::-1].index(_ENGINE) :]
    innermost = next((code for code in reversed(inside) if is_users(code) or _is_own(code)), None)
    return innermost is not None and _is_own(innermost)


def _is_own(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE) and code.co_name not in _HANDING_ON
