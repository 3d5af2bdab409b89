"""Knows the findings of a program again in the edited program."""

import re
from collections.abc import Callable, Iterable, Sequence

from gradscope.recording.finding import Finding
from gradscope.recording.records import Site

_NUMBER = re.compile(r"\d[\d,.]*(?:e[+-]?\d+)?")


def matched(
    before: Sequence[Finding],
    after: Sequence[Finding],
    earlier: Callable[[Site | None], tuple[str, int] | None],
) -> dict[int, int]:
    """Return the position of the finding before by that of the one after; each at most once.

    Findings are the same by their fingerprint, then by their line, then by their message apart from
    its numbers.

    Args:
        before: Findings of the program as it is.
        after: Findings of the edited program.
        earlier: Returns file and line that a line of the edited program has in the original.
    """
    found: dict[int, int] = {}
    for is_same in (
        lambda old, new: old.fingerprint == new.fingerprint,
        lambda old, new: _line(old.location) == earlier(new.location),
        lambda old, new: _description(old) == _description(new),
    ):
        for at, new in _left(after, found):
            for position, old in _left(before, found.values()):
                if old.rule == new.rule and is_same(old, new):
                    found[at] = position
                    break
    return found


def _left(findings: Sequence[Finding], taken: Iterable[int]) -> list[tuple[int, Finding]]:
    gone = set(taken)
    return [(at, one) for at, one in enumerate(findings) if at not in gone]


def _line(site: Site | None) -> tuple[str, int] | None:
    return None if site is None else (site.file, site.line)


def _description(finding: Finding) -> str:
    return _NUMBER.sub("#", finding.message)
