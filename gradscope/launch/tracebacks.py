"""Leaves gradscope out of the tracebacks of the script that it runs."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

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
    kept = None
    for entry, file in zip(reversed(entries), reversed(files), strict=True):
        if not file.startswith(hidden):
            entry.tb_next = kept
            kept = entry
    return kept
