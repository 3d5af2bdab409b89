"""Reads the source code around lines."""

import linecache
from collections.abc import Iterable, Iterator

from gradscope.recording.evidence.code import SourceRecord
from gradscope.recording.records import Site

CONTEXT = 2
"""Lines that are kept before and after each line."""


def sources_around(sites: Iterable[Site]) -> Iterator[SourceRecord]:
    """Yield the lines around the sites, in windows that do not touch; none of unreadable files."""
    by_file: dict[str, set[int]] = {}
    for site in sites:
        window = range(site.line - CONTEXT, site.line + CONTEXT + 1)
        by_file.setdefault(site.file, set()).update(window)
    for file, numbers in by_file.items():
        lines = linecache.getlines(file)
        known = sorted(number for number in numbers if 1 <= number <= len(lines))
        for first, last in _runs(known):
            texts = tuple(line.rstrip() for line in lines[first - 1 : last])
            yield SourceRecord(file=file, first=first, lines=texts)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive numbers; the numbers ascend."""
    present = set(numbers)
    starts = (number for number in numbers if number - 1 not in present)
    ends = (number for number in numbers if number + 1 not in present)
    return zip(starts, ends, strict=True)
