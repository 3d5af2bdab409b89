"""Edits of a text: derives them from two versions, applies them, and shows them as a diff."""

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import pairwise, takewhile

from gradscope.recording.finding import Edit, Position

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as Python counts them; `splitlines` also ends lines at a form feed."""
_BREAK = re.compile(r"\r\n|\r|\n")
_LINE_FEED = re.compile(r"[^\n]*\n|[^\n]+")


def _split(text: str, line: re.Pattern[str]) -> list[str]:
    return line.findall(text)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as Python counts them, with their line breaks."""
    return _split(text, _LINE)


def edits_between(file: str, before: str, after: str) -> tuple[Edit, ...]:
    """Return the edits that turn one version of a file into another, each as short as possible."""
    old, new = lines_of(before), lines_of(after)
    starts = _line_starts(before)
    # By default, difflib ignores lines that are frequent in a long file, such as blank ones.
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    edits = []
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            removed, inserted = "".join(old[first:last]), "".join(new[new_first:new_last])
            offset = starts[first] if first < len(starts) else len(before)
            edits.append(_shortest(file, starts, offset, removed, inserted))
    return tuple(edits)


def _shortest(file: str, starts: list[int], offset: int, removed: str, inserted: str) -> Edit:
    """Return an edit without the characters that both texts begin or end with."""
    head = _common(removed, inserted)
    removed, inserted = removed[head:], inserted[head:]
    tail = _common(removed[::-1], inserted[::-1])
    start, end = offset + head, offset + head + len(removed) - tail
    return Edit(
        file=file,
        start=_position(starts, start),
        end=_position(starts, end),
        replacement=inserted[: len(inserted) - tail],
    )


def _common(first: str, second: str) -> int:
    """Return the number of characters with which both texts begin."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in lines_of(text):
        starts.append(starts[-1] + len(line))
    return starts


def _position(starts: list[int], offset: int) -> Position:
    line = min(bisect.bisect_right(starts, offset), len(starts))
    return Position(line=line, column=offset - starts[line - 1] + 1)


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits that do not overlap; lines at one position stay in order."""
    starts = _line_starts(text)

    def offset(position: Position) -> int:
        return starts[position.line - 1] + position.column - 1

    ordered = sorted(edits, key=lambda one: one.start)
    # From the end, so that the positions of earlier edits still hold.
    for edit in ordered[::-1]:
        text = text[: offset(edit.start)] + edit.replacement + text[offset(edit.end) :]
    return text


def line_before(file: str, line: int, edits: Iterable[Edit]) -> int:
    """Return the number that a line of an edited file had before the edits.

    Lines that an edit inserted have the number of the line at which it begins.
    """
    shift = 0
    for edit in sorted(edits, key=lambda one: one.start):
        added = len(_BREAK.findall(edit.replacement))
        removed = edit.end.line - edit.start.line
        start = edit.start.line + shift
        if edit.file != file or line < start or (line == start and not added):
            continue
        if line <= start + added:
            return edit.start.line + min(line - start, removed)
        shift += added - removed
    return line - shift


def overlap(edits: Iterable[Edit]) -> bool:
    """Return whether two edits change the same characters, or insert at the same position.

    Whole lines may be inserted at the same position.
    """
    ordered = sorted(set(edits), key=lambda one: (one.file, one.start, one.end))
    return any(
        before.file == after.file
        and (before.end > after.start or before.start == after.start)
        and not (before.start == after.start and _is_line(before) and _is_line(after))
        for before, after in pairwise(ordered)
    )


def _is_line(edit: Edit) -> bool:
    """Return whether an edit only inserts whole lines."""
    is_whole = edit.start.column == 1 and edit.replacement.endswith(("\n", "\r"))
    return edit.start == edit.end and is_whole


def by_file(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """Return edits by their files; equal ones count once."""
    found: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        found.setdefault(edit.file, []).append(edit)
    return found


def diff_of(edits: Sequence[Edit], texts: Callable[[str], str], shown: Callable[[str], str]) -> str:
    """Return edits as a unified diff, without a last line break.

    Args:
        edits: The edits of one or several files.
        texts: Returns the text of a file.
        shown: Returns the path of a file as the diff shows it.
    """
    return "\n".join(
        line
        for file, changes in by_file(edits).items()
        for line in _diff(texts(file), applied(texts(file), changes), shown(file))
    )


def _diff(before: str, after: str, name: str) -> Iterator[str]:
    """Yield the lines of a diff without line breaks.

    A carriage return at the end of a line belongs to the line, as in git's diffs.
    """
    texts = (_split(before, _LINE_FEED), _split(after, _LINE_FEED))
    for line in unified_diff(*texts, f"a/{name}", f"b/{name}"):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
