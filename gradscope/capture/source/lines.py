"""Finds the line of code that calls into torch."""

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import Node

_TORCHS = str(Path(torch.__file__).parent) + os.sep
_STANDARD_LIBRARY = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages, which may be in that of the standard library."""
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_APPLY: CodeType | None = getattr(
    getattr(torch.autograd.Function.apply, "__func__", None), "__code__", None
)
"""None if `Function.apply` is no Python function, as from torch 2.15 on."""
_MODULE_CALL = torch.nn.Module._wrapped_call_impl.__code__
_HOOKS_DEPTH = 4
"""Usual number of frames between a module's call and `Caller`: it spares looking at each."""
NUMBERED = hasattr(torch._C._autograd, "_get_sequence_nr")
"""Whether torch exposes its sequence numbers, which are not public."""
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr if NUMBERED else lambda: 0
"""The sequence number of the next node of this thread."""
# Owner of a file's code; the standard library's counts as torch's, as neither has the user's line.
# Plain numbers: they are compared for every frame of every call.
_USERS, _TORCH, _MODULE, _GRADSCOPE = range(1, 5)


class _Kinds(dict[str, int]):
    """Owners of code by file, each found once."""

    def __missing__(self, file: str) -> int:
        if file == torch.nn.modules.module.__file__:
            kind = _MODULE
        elif file.startswith(_PACKAGE):
            kind = _GRADSCOPE
        else:
            kind = _TORCH if file.startswith(_TORCHS) or is_standard(file) else _USERS
        self[file] = kind
        return kind


_kinds = _Kinds()


def is_standard(file: str) -> bool:
    """Return whether a file belongs to the standard library."""
    # It backports parts of the standard library, such as the decorator of deprecated functions.
    if file.endswith(f"{os.sep}typing_extensions.py"):
        return True
    is_inside = file.startswith((*_STANDARD_LIBRARY, "<frozen"))
    return is_inside and not any(part in file for part in INSTALLED)


def is_users(code: CodeType) -> bool:
    """Return whether code belongs neither to torch, the standard library nor gradscope."""
    return is_users_file(code.co_filename)


def is_users_file(file: str) -> bool:
    """Return whether a file belongs neither to torch, the standard library nor gradscope."""
    return _kinds[file] == _USERS


NO_NUMBER = 2**64 - 1
"""Sequence number of leaves, which have none: `AccumulateGrad` nodes run first."""


def created(node: Node) -> int | None:
    """Return a node's sequence number, None for leaves, which have none."""
    number: int = node._sequence_nr()
    return None if number == NO_NUMBER else number


class Line(NamedTuple):
    """A line of code that runs or ran."""

    code: CodeType
    number: int


class OpenCall(NamedTuple):
    """A module call whose forward is running."""

    number: int
    """Index of the call among all calls."""
    line: Line | None
    """Line that made the call."""
    with_grad: bool
    """Whether gradients were enabled when it started."""


class Forward(NamedTuple):
    """A call of a model of which not all calls are held."""

    model: int
    """`id` of the model."""
    number: int
    """Index of the call among all calls."""
    oldest: int
    """Index of the model's first call whose tensors are held."""


class Caller:
    """Finds the line that called into torch."""

    def __init__(self) -> None:
        self.open_calls: list[OpenCall] = []
        """Modules whose forward is running, innermost last."""
        self.forward: Forward | None = None
        """The last call from outside any module, if only the last calls are held."""

    def line(self, frame: FrameType | None) -> Line | None:
        """Return the innermost line outside torch and the standard library, from `frame` on.

        None for gradscope's own.
        """
        while frame is not None:
            code = frame.f_code
            kind = _kinds[code.co_filename]
            if kind != _TORCH:
                if kind == _USERS:
                    return Line(code, frame.f_lineno)
                if kind == _GRADSCOPE:
                    return None
                if self.open_calls:  # the module's line is known: no need to go further out
                    return self.open_calls[-1].line
            frame = frame.f_back
        return None

    def first_call_without_grad(self) -> int | None:
        """Return the index of the outermost open call that runs without gradients."""
        positions = (
            position for position, call in enumerate(self.open_calls) if not call.with_grad
        )
        return next(positions, None)

    def line_of_module_call(self) -> Line | None:
        """Return the line that called the module whose call is starting, from a hook of torch's."""
        frame: FrameType | None = sys._getframe(_HOOKS_DEPTH)
        # Tracers and other tools replace `Module.__call__`: then the depth differs.
        if frame is None or frame.f_code is not _MODULE_CALL:
            frame = sys._getframe(2)
        while frame is not None and _kinds[frame.f_code.co_filename] == _MODULE:
            frame = frame.f_back
        return self.line(frame)

    def line_of_apply(self, frame: FrameType | None) -> Line | None:
        """Return the line that called the custom function whose forward is running, if any."""
        while frame is not None:
            if frame.f_code is _APPLY:
                return self.line(frame)
            if _APPLY is None and _is_forward(frame.f_code):
                return self.line(frame.f_back)
            frame = frame.f_back
        return None


def hands_on_input(func: Callable[..., object], args: tuple[object, ...]) -> bool:
    """Return whether `Function.apply` makes the call: it views an input that a forward returns.

    From torch 2.15 on, it has no frame of its own: its caller seems to make the call.
    """
    is_view = getattr(func, "__name__", "") == "view_as"
    return is_view and len(args) > 1 and args[0] is args[1]


_forwards: dict[int, tuple[CodeType, bool]] = {}
"""By `id` of code, which is kept alive: whether it is the forward of a custom function."""


def _is_forward(code: CodeType) -> bool:
    known = _forwards.get(id(code))
    if known is None:
        known = _forwards[id(code)] = (code, any(one is code for one in _codes_of_forwards()))
    return known[1]


def _codes_of_forwards() -> Iterator[object]:
    waiting = [torch.autograd.Function]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        forward = vars(kind).get("forward")
        yield getattr(getattr(forward, "__func__", forward), "__code__", None)


_LISTS = frozenset({"named_parameters", "parameters"})
"""Methods by which code chooses parameters of a model."""
_FARTHEST = 16
"""Number of frames in which the choice is looked for."""


def line_that_chooses(frame: FrameType | None) -> Line | None:
    """Return the innermost line of the user's whose function lists a model's parameters."""
    for _ in range(_FARTHEST):
        if frame is None or any(part in frame.f_code.co_filename for part in INSTALLED):
            return None  # a library's trainer, or the end
        # `co_names` has the attributes that a function reads, whether or not it runs that line.
        if not _LISTS.isdisjoint(frame.f_code.co_names):
            return Line(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return None


_FILES: dict[str, str] = {}
"""By name of a cell: the file under which Python knows its code."""


def shown_file(file: str) -> str:
    """Return the name of a notebook's cell by its execution count, of other code its file."""
    number = _execution_count(file)
    if number is None:
        return file
    name = f"Cell [{number}]"
    _FILES[name] = file
    return name


def lines_of(file: str) -> list[str]:
    """Return the source of a file or of a cell; empty if it cannot be read."""
    return linecache.getlines(_FILES.get(file, file))


def _execution_count(file: str) -> int | None:
    """Return the number that IPython shows for a cell; None for other code."""
    shell: Any = sys.modules.get("IPython.core.getipython")
    running = None if shell is None else shell.get_ipython()
    cells = getattr(getattr(running, "compile", None), "_filename_map", {})
    number = cells.get(file)
    return number if isinstance(number, int) else None
