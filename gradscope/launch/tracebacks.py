"""Leaves gradscope out of the tracebacks of the script that it runs."""

from collections.abc import Iterator, Sequence
from itertools import filterfalse, pairwise
from pathlib import Path
from types import CodeType, TracebackType

from gradscope.launch.module_calls import as_direct, is_detour
from gradscope.step_capture.called_from import NAME as CALLED_FROM

_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"
_IMPORTS = str(Path(__file__).with_name("torch_import.py"))
_MACHINERY = "<frozen importlib._bootstrap"


def drop_own_frames(error: BaseException) -> None:
    """Drop gradscope's frames from the tracebacks of an exception and of those it came from."""
    for one in _chain(error):
        one.__traceback__ = _without_own(one.__traceback__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
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
    # Python hides the frames of an import, but not where one of ours stands among them.
    hidden = (_PACKAGE, _MACHINERY) if _IMPORTS in files else (_PACKAGE,)
    detours = _detours([entry.tb_frame.f_code for entry in entries])
    for position, (outer, inner) in enumerate(pairwise(list(entries))):
        if is_detour(outer, inner):
            entries[position] = as_direct(outer)
            detours.add(position + 1)
    kept = None
    for position, file in reversed(list(enumerate(files))):
        if position not in detours and not file.startswith(hidden):
            entries[position].tb_next = kept
            kept = entries[position]
    return kept


def _detours(codes: Sequence[CodeType]) -> set[int]:
    """Return the places of what a function of torch's goes through to reach a mode of ours.

    It hands itself on, `backward` to `handle_torch_function` to the mode, which calls it again.
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
