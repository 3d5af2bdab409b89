"""A comparison in single lines, for editors and grep."""

from collections.abc import Iterator

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import Change
from gradscope.phrasing import printable
from gradscope.report.comparison.phrasing import (
    CURVE_NAMES,
    PRESENCE,
    TITLES,
    change_text,
    counts_text,
    difference_text,
    parting_text,
    presence_texts,
    ratio_text,
    regression_text,
    renaming_text,
    side_text,
    spread_text,
    standing_text,
    verdict_text,
)
from gradscope.report.concise import finding_line
from gradscope.report.number_format import figure
from gradscope.report.signs import UNICODE

_UNTOLD: frozenset[Change] = frozenset({*PRESENCE, "equal", "none", "rounding", "shard", "within"})


def render_concise(comparison: Comparison, *, top: int) -> str:
    """Return a line a side, a difference, a finding, a curve and a parameter, and the verdict."""
    return "\n".join(printable(line) for line in _lines(comparison, top=top))


def _lines(comparison: Comparison, *, top: int) -> Iterator[str]:
    for side in comparison.sides:
        yield f"{side.letter}: {side.name}: {side_text(side)}"
    for one in comparison.differences:
        yield f"differs: {one.what}: {difference_text(one)}"
    for side, renamings in zip(comparison.sides, comparison.renamings, strict=True):
        yield from (f"names: {renaming_text(renaming, side)}" for renaming in renamings)
    for finding in comparison.findings:
        position, shown = finding.first
        report = comparison.sides[position].report
        yield f"{finding_line(shown, report)} ({standing_text(finding)})"
    yield from _numbers(comparison)
    yield from presence_texts(comparison)
    yield from _parameters(comparison, top=top)
    for regression in comparison.verdict.regressions:
        letter = comparison.sides[regression.side].letter
        yield f"{letter}: {regression_text(regression, comparison)}"
    yield verdict_text(comparison)


def _numbers(comparison: Comparison) -> Iterator[str]:
    base = comparison.sides[0]
    for position, side in enumerate(comparison.sides[1:], 1):
        for curve in comparison.curves:
            of = f" of {curve.optimizer}" if curve.optimizer else ""
            if text := parting_text(curve, position, comparison):
                yield f"{side.letter}: {CURVE_NAMES[curve.kind]}{of} {text}"
        if not comparison.curves:
            yield (
                f"{side.letter}: loss {_moved(base.loss, side.loss)}, gradient norm "
                f"{_moved(base.grad_norm, side.grad_norm)}"
            )
        yield f"{side.letter}: {counts_text(comparison, position)}"
        if spread := spread_text(comparison, position):
            yield f"{side.letter}: {spread}"


def _moved(before: float | None, after: float | None) -> str:
    change = change_text(before, after)
    ends = f"{figure(before)} {UNICODE.arrow} {figure(after)}"
    return f"{ends} ({change})" if change else ends


def _parameters(comparison: Comparison, *, top: int) -> Iterator[str]:
    rows = [one for one in comparison.parameters if one.change not in _UNTOLD]
    rows.sort(key=lambda one: one.worst)
    for one in rows[:top]:
        for side, pair in zip(comparison.sides, one.pairs, strict=True):
            if pair is not None and pair.change not in _UNTOLD:
                ratio = ratio_text(pair.ratio)
                yield f"{side.letter}: {one.name}: {TITLES[pair.change]}, ratio {ratio}"
    if (more := len(rows) - top) > 0:
        yield f"{more:,} more parameters outside the tolerance: --top {len(rows)}"
