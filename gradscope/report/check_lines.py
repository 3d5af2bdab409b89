"""The checks of gradients that tests made, a line each."""

from collections.abc import Iterable, Iterator, Sequence

from gradscope.check_events import Check
from gradscope.report.figures import counted, figure
from gradscope.report.names import printable
from gradscope.report.page import ASCII

_SHOWN = 20
_TITLES = ("", "test", "model", "parameters", "norm", "findings")


def check_lines(checks: Sequence[tuple[str, Check]], *, is_folded: bool) -> Iterator[str]:
    """Yield a line for each test's check, the worst first, and one for all of them.

    Args:
        checks: Each with the name of its test.
        is_folded: Whether only as many are shown as the eye takes in.
    """
    if not checks:
        yield "no test checked a gradient"
        return
    ranked = sorted(checks, key=lambda made: _rank(made[1]))
    shown = ranked[:_SHOWN] if is_folded else ranked
    yield from _aligned([_TITLES, *(_cells(*made) for made in shown)])
    if folded := ranked[len(shown) :]:
        yield f"and {len(folded):,} more, {_found(check for _, check in folded)}: -v lists them"
    failed = sum(not check.passed for _, check in checks)
    verdict = f"{failed:,} failed" if failed else "all passed"
    yield f"{counted(len(checks), 'check')}, {verdict}: {_found(check for _, check in checks)}"


def _rank(check: Check) -> tuple[bool, int, int, int]:
    return (check.passed, -check.errors, -check.warnings, -check.notes)


def _cells(test: str, check: Check) -> tuple[str, ...]:
    worst = " ".join(filter(None, [check.worst, check.place]))
    return (
        "passed" if check.passed else "FAILED",
        test,
        printable(check.model),
        f"{check.parameters:,}",
        figure(check.grad_norm, ASCII),
        printable(": ".join(filter(None, [_found([check]), worst]))),
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
