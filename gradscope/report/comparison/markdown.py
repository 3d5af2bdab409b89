"""A comparison in Markdown, as for a comment on a pull request."""

from collections.abc import Iterator

from gradscope.analysis.view import shown_site
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import Change, ComparedParameter
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
    renaming_text,
    side_text,
    spread_text,
    standing_text,
)
from gradscope.report.comparison.verdict_words import regression_text, verdict_text
from gradscope.report.markdown_syntax import code, escape, prose, table
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE

_UNTOLD: frozenset[Change] = frozenset({*PRESENCE, "equal", "none", "rounding", "shard"})
_FINDINGS = 20


def render_markdown(comparison: Comparison, *, top: int) -> str:
    """Return the comparison: the verdict first, which is all that many will read."""
    return "\n\n".join(_blocks(comparison, top=top))


def _blocks(comparison: Comparison, *, top: int) -> Iterator[str]:
    yield f"## gradscope compare\n\n**{escape(verdict_text(comparison))}**"
    regressions = [
        f"- {comparison.sides[one.side].letter}: "
        f"{escape(regression_text(one, comparison, UNICODE))}"
        for one in comparison.verdict.regressions
    ]
    if regressions:
        yield "\n".join(regressions)
    yield _sides(comparison)
    told = [
        *(
            f"- {one.what}: {escape(difference_text(one, UNICODE))}"
            for one in comparison.differences
        ),
        *(
            f"- names: {escape(renaming_text(renaming, side))}"
            for side, renamings in zip(comparison.sides, comparison.renamings, strict=True)
            for renaming in renamings
        ),
    ]
    if told:
        yield "Differences in setup:\n\n" + "\n".join(told)
    yield from _findings(comparison)
    yield from _curves(comparison)
    yield from _parameters(comparison, top=top)


def _sides(comparison: Comparison) -> str:
    base = comparison.sides[0]
    rows = []
    for side in comparison.sides:
        cells = [side.letter, code(side.name), escape(side_text(side))]
        for own, before in ((side.loss, base.loss), (side.grad_norm, base.grad_norm)):
            change = "" if side is base else change_text(before, own, UNICODE)
            cells.append(figure(own, UNICODE) + (f" ({change})" if change else ""))
        rows.append(cells)
    return table(("", "recording", "of", "loss", "gradient norm"), rows)


def _findings(comparison: Comparison) -> Iterator[str]:
    if not comparison.findings:
        return
    lines = []
    for one in comparison.findings[:_FINDINGS]:
        position, finding = one.first
        site = shown_site(finding.location, comparison.sides[position].report.target.root)
        at = f" {code(site)}" if site else ""
        lines.append(
            f"- **{standing_text(one)}**: {finding.severity} {finding.rule} {finding.name}{at}: "
            f"{prose(finding.message)}"
        )
    if (more := len(comparison.findings) - _FINDINGS) > 0:
        lines.append(f"- {more:,} more")
    yield "### Findings\n\n" + "\n".join(lines)


def _curves(comparison: Comparison) -> Iterator[str]:
    lines = [
        f"- {side.letter}: {CURVE_NAMES[curve.kind]}{escape(of)} "
        f"{escape(parting_text(curve, position, comparison, UNICODE))}"
        for curve in comparison.curves
        for of in [f" of {curve.optimizer}" if curve.optimizer else ""]
        for position, side in enumerate(comparison.sides)
        if curve.partings[position] is not None
    ]
    if lines:
        yield "### Curves\n\n" + "\n".join(lines)


def _parameters(comparison: Comparison, *, top: int) -> Iterator[str]:
    if not comparison.parameters:
        return
    lines = []
    for position, side in enumerate(comparison.sides[1:], 1):
        words = [counts_text(comparison, position), spread_text(comparison, position, UNICODE)]
        lines.append(f"- {side.letter}: {escape('; '.join(word for word in words if word))}")
    lines += [f"- {escape(words)}" for words in presence_texts(comparison)]
    yield "### Parameters\n\n" + "\n".join(lines)
    rows = [one for one in comparison.parameters if one.change not in _UNTOLD]
    rows.sort(key=lambda one: one.worst)
    if rows:
        yield _table(rows[:top], comparison)
    if (more := len(rows) - top) > 0:
        yield f"{more:,} more: `--top {len(rows)}`"


def _table(rows: list[ComparedParameter], comparison: Comparison) -> str:
    base, others = comparison.sides[0], comparison.sides[1:]
    has_cosine = any(pair and pair.cosine is not None for one in rows for pair in one.pairs)
    header = ["", "parameter", *(f"norm {side.letter}" for side in comparison.sides)]
    for side in others:
        header.append(f"{side.letter} / {base.letter}")
        header += [f"cosine {side.letter}"] if has_cosine else []
    return table(header, (_row(one, has_cosine=has_cosine) for one in rows))


def _row(one: ComparedParameter, *, has_cosine: bool) -> Iterator[str]:
    yield TITLES[one.change]
    yield code(one.name)
    for side in one.sides:
        yield UNICODE.dash if side is None else figure(side.norm, UNICODE)
    for pair in one.pairs[1:]:
        yield UNICODE.dash if pair is None else ratio_text(pair.ratio, UNICODE)
        if has_cosine:
            yield UNICODE.dash if pair is None else ratio_text(pair.cosine, UNICODE)
