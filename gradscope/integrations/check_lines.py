"""Formats the gradient checks of tests, one line per check."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from gradscope.frozen import dataclass
from gradscope.integrations.check_events import Check
from gradscope.phrasing import counted, printable
from gradscope.report.number_format import figure
from gradscope.report.page import ASCII

_SHOWN = 20
_TITLES = ("", "test", "model", "parameters", "norm", "findings")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A check with the outcome of its test, or a test that failed because it made no check."""

    status: Literal["FAILED", "caught", "passed"]
    """Outcome of the test. Further checks of a test are `passed` if another one made it fail."""
    test: str
    check: Check | None
    remark: str = ""
    """Why the outcome of the test differs from that of its check."""


def check_lines(
    checks: Sequence[tuple[str, Check]], failed: Mapping[str, str], *, is_folded: bool
) -> Iterator[str]:
    """Yield a line for each check, the worst first, and one for all of them.

    Args:
        checks: Each check with the name of its test.
        failed: The failed tests by name. The value says what is wrong with tests that failed
            because they did not check gradients as they should; otherwise it is empty.
        is_folded: Whether to shorten the list.
    """
    lines = sorted((*_made(checks, failed), *_missing(checks, failed)), key=_rank)
    if not lines:
        yield "no test checked gradients"
        return
    shown = lines[:_SHOWN] if is_folded else lines
    yield from _aligned([_TITLES, *map(_cells, shown)])
    if folded := lines[len(shown) :]:
        found = _found(line.check for line in folded if line.check is not None)
        yield f"and {len(folded):,} more, {found}: -v lists them"
    found = _found(check for _, check in checks)
    yield f"{counted(len(checks), 'check')}, {_verdict(lines)}: {found}"


def _made(checks: Sequence[tuple[str, Check]], failed: Mapping[str, str]) -> Iterator[_Line]:
    by_a_check = {test for test, check in checks if not check.passed}
    for test, check in checks:
        if test not in failed:
            remark = "" if check.passed else "the test expects it"
            status: Literal["caught", "passed"] = "passed" if check.passed else "caught"
            yield _Line(status=status, test=test, check=check, remark=remark)
        elif check.passed and test in by_a_check:
            yield _Line(status="passed", test=test, check=check)
        else:
            elsewhere = "the test failed for another reason" if check.passed else ""
            remark = failed[test] or elsewhere
            yield _Line(status="FAILED", test=test, check=check, remark=remark)


def _missing(checks: Sequence[tuple[str, Check]], failed: Mapping[str, str]) -> Iterator[_Line]:
    """Yield the tests that should have checked gradients and made no check."""
    made = {test for test, _ in checks}
    for test, reason in failed.items():
        if reason and test not in made:
            yield _Line(status="FAILED", test=test, check=None, remark=reason)


def _verdict(lines: Sequence[_Line]) -> str:
    """Return how many checks failed, and how many tests failed without a failed check."""
    states = Counter(
        "failed" if line.status == "FAILED" and not line.check.passed else line.status
        for line in lines
        if line.check is not None
    )
    words = [f"{states['failed']:,} failed"] if states["failed"] else []
    if states["caught"]:
        words.append(f"{states['caught']:,} failed and caught")
    if states and not words:
        words.append("all passed")
    if others := {line.test for line in lines if line.status == "FAILED" and line.remark}:
        words.append(f"{counted(len(others), 'test')} failed otherwise")
    return ", ".join(words)


def _rank(line: _Line) -> tuple[int, int, int, int]:
    status = ("FAILED", "caught", "passed").index(line.status)
    check = line.check
    levels = (0, 0, 0) if check is None else (-check.errors, -check.warnings, -check.notes)
    return (status, *levels)


def _cells(line: _Line) -> tuple[str, ...]:
    check = line.check
    if check is None:
        return (line.status, line.test, "-", "-", "-", printable(line.remark))
    worst = " ".join(filter(None, [check.worst, check.location]))
    findings = ": ".join(filter(None, [_found([check]), worst]))
    return (
        line.status,
        line.test,
        printable(check.model),
        f"{check.parameters:,}",
        figure(check.grad_norm, ASCII),
        printable("; ".join(filter(None, [findings, line.remark]))),
    )


def _found(checks: Iterable[Check]) -> str:
    found = list(checks)
    totals = (
        (sum(check.errors for check in found), "error"),
        (sum(check.warnings for check in found), "warning"),
        (sum(check.notes for check in found), "note"),
    )
    return ", ".join(counted(total, noun) for total, noun in totals if total) or "no findings"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
