"""Removes gradscope from the tracebacks of the script that it runs, and what its hooks add."""

import dis
import functools
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import filterfalse, pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from gradscope.launch import imports
from gradscope.step_capture.called_from import NAME as CALLED_FROM

_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"
_IMPORTS = imports.__file__
_MACHINERY = "<frozen importlib._bootstrap"


def drop_own_frames(error: BaseException) -> None:
    """Drop gradscope's frames from the tracebacks of an exception and of its causes."""
    for one in _chain(error):
        one.__traceback__ = _without_own(one.__traceback__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
        # An exception may be its own context, or the cause of several.
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    files = [entry.tb_frame.f_code.co_filename for entry in entries]
    # Python hides the frames of an import, but not if a gradscope frame is among them.
    hidden = (_PACKAGE, _MACHINERY) if _IMPORTS in files else (_PACKAGE,)
    detours = _detours([entry.tb_frame.f_code for entry in entries])
    for position, (outer, inner) in enumerate(pairwise(list(entries))):
        if is_detour(outer, inner):
            entries[position] = as_direct(outer)
            detours.add(position + 1)
    # From the innermost entry outwards: each entry gets the one that it leads to.
    kept = None
    for position, file in reversed(list(enumerate(files))):
        if position not in detours and not file.startswith(hidden):
            entries[position].tb_next = kept
            kept = entries[position]
    return kept


def _detours(codes: Sequence[CodeType]) -> set[int]:
    """Return the positions of torch frames through which a call reaches a gradscope mode.

    The function calls `handle_torch_function`, which calls the mode, which calls it again.
    """
    found = set[int]()
    for position, code in enumerate(codes):
        if code.co_name == CALLED_FROM:
            found.add(position)
        elif code.co_name == "__torch_function__" and code.co_filename.startswith(_PACKAGE):
            before = position - 1
            if before >= 0 and codes[before].co_name == "handle_torch_function":
                found.add(before)
                again = next(filterfalse(_is_own, codes[position + 1 :]), None)
                if before and codes[before - 1] is again:
                    found.add(before - 1)
    return found


def _is_own(code: CodeType) -> bool:
    return code.co_name == CALLED_FROM or code.co_filename.startswith(_PACKAGE)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CALL, _DETOUR = "Module._call_impl", "Module._call_impl.<locals>.inner"
_DIRECTLY = "return forward_call("


def is_detour(outer: TracebackType, inner: TracebackType) -> bool:
    """Return whether `inner` is in the traceback only because of gradscope's hooks on modules."""
    outer_code, inner_code = outer.tb_frame.f_code, inner.tb_frame.f_code
    return (
        outer_code.co_qualname == _CALL
        and inner_code.co_qualname == _DETOUR
        and outer_code.co_filename == inner_code.co_filename
        and _position_of_direct_call(outer_code) is not None
        and not _has_hooks(outer.tb_frame)
    )


def as_direct(outer: TracebackType) -> TracebackType:
    """Return the traceback entry of a module call as it is without hooks."""
    position = _position_of_direct_call(outer.tb_frame.f_code)
    if position is None:
        return outer
    instruction, line = position
    return TracebackType(None, outer.tb_frame, instruction, line)


@functools.cache
def _position_of_direct_call(code: CodeType) -> tuple[int, int] | None:
    """Return instruction and line at which a module without hooks calls its forward."""
    for one in dis.get_instructions(code):
        line = one.positions.lineno if one.positions else None
        if line is not None and one.opname.startswith("CALL_FUNCTION"):
            text = linecache.getline(code.co_filename, line)
            if text.strip().startswith(_DIRECTLY):
                return one.offset, line
    return None


def _has_hooks(frame: FrameType) -> bool:
    """Return whether other hooks are registered on the called module, or on all modules."""
    module = frame.f_locals.get("self")
    torchs = vars(sys.modules.get("torch.nn.modules.module", sys))
    own = [vars(module).get(name) for name in _HOOKS] if hasattr(module, "__dict__") else []
    everyones = [torchs.get(f"_global{name}") for name in _HOOKS]
    return any(map(bool, own)) or any(map(_holds_others, everyones))


def _holds_others(hooks: object) -> bool:
    found = hooks.values() if isinstance(hooks, Mapping) else ()
    return any(not _is_own_hook(hook) for hook in found)


def _is_own_hook(hook: object) -> bool:
    function = getattr(hook, "__func__", hook)
    return str(getattr(function, "__module__", "")).startswith("gradscope.")
