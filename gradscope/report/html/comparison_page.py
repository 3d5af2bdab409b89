"""The page of a comparison: a tab for each side and the base, and one of all sides."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.analysis.view import shown_site
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.findings import ComparedFinding
from gradscope.comparison.side import Side
from gradscope.recording.finding import Severity
from gradscope.report.document import Fact
from gradscope.report.documents.comparison_phrasing import (
    STANDINGS,
    change_text,
    compared_text,
    counts_text,
    difference_text,
    norm_limit,
    ranks_text,
    ratio_text,
    regression_text,
    renaming_text,
    side_text,
    spread_text,
    standing_text,
    verdict_text,
)
from gradscope.report.html.charts.axes import number
from gradscope.report.html.charts.comparison.curves import compared_curves
from gradscope.report.html.charts.comparison.marks import (
    by_standing,
    pair_of,
    pair_rows,
    pair_table,
    sides_table,
)
from gradscope.report.html.charts.comparison.ratios import compared_ratios, compared_spread
from gradscope.report.html.charts.comparison.sides import compared_norms, compared_sides
from gradscope.report.html.columns import Json, module_columns
from gradscope.report.html.page import SIZE_BUDGET, Chart, Served, Tab, render_page, within
from gradscope.report.html.phrasing import (
    FindingCard,
    PageTexts,
    SummaryCell,
    SummaryTable,
    finding_card,
    module_of_finding,
)

_ALL = "all sides"
_ALONE = "run gradscope compare on the base and this side alone to see them"


def render_comparison_html(
    comparison: Comparison, size_budget: int = SIZE_BUDGET, served: Served | None = None
) -> str:
    """Return the page of a comparison, without a last line break.

    Args:
        comparison: What to show.
        size_budget: Bytes for the data of charts; sides that do not fit are described in words.
        served: How a server keeps the page current; None for a file.
    """
    positions = range(1, len(comparison.sides))
    tabs = [
        _pair_tab(pair_of(comparison, position), is_alone=len(positions) == 1)
        for position in positions
    ]
    if len(tabs) > 1:
        worse = {one.side for one in comparison.verdict.regressions}
        # Where space is short, the sides that became worse keep their charts.
        urgency = [0, *(1 if position in worse else 2 for position in positions)]
        tabs = within(size_budget, [_overview(comparison), *tabs], urgency, _ALONE)
    return render_page(tabs, "gradscope compare", served)


def _pair_tab(pair: Comparison, *, is_alone: bool) -> Tab:
    base, other = pair.sides
    rows = pair_rows(pair)
    limit = norm_limit(pair)
    spread = compared_spread(rows, (base, other), limit)
    charts = (
        compared_curves(pair),
        compared_ratios(rows, (base, other), limit, pair.tolerance.cosine),
        compared_norms(rows, base, other, limit, is_wide=spread is None),
        spread,
        pair_table(rows, (base, other)) if rows else None,
    )
    return Tab(
        title=f"{base.name} → {other.name}" if is_alone else f"{other.letter} {other.name}",
        texts=_pair_texts(pair),
        charts=tuple(chart for chart in charts if isinstance(chart, Chart)),
        modules=_modules(base),
    )


def _modules(base: Side) -> dict[str, Json]:
    """Return what selecting needs of the base's modules."""
    columns = module_columns(base.report)
    return {name: columns[name] for name in ("path", "class", "parent")}


def _pair_texts(pair: Comparison) -> PageTexts:
    base, other = pair.sides
    return PageTexts(
        heading=f"{base.name} → {other.name}",
        facts=tuple(_pair_facts(pair)),
        verdict=verdict_text(pair),
        reasons=tuple(regression_text(one, pair) for one in pair.verdict.regressions),
        level=_level(pair),
        warnings=tuple(pair.verdict.skip_reasons),
        cards=tuple(_cards(pair)),
        summaries=tuple(_pair_summaries(pair)),
        notes=tuple(_notes(pair)),
    )


def _level(comparison: Comparison) -> Severity | None:
    match comparison.verdict.outcome:
        case "unjudged":
            return "error"
        case "failed":
            return "error" if comparison.is_check else "warning"
        case "passed":
            return None


def _pair_facts(pair: Comparison) -> Iterator[Fact]:
    base, other = pair.sides
    direction = pair.directions[1]
    cosine = None if direction is None or direction.total is None else direction.total.cosine
    reported = (
        (base.letter, side_text(base)),
        (other.letter, side_text(other)),
        ("compared", compared_text(pair)),
        ("ranks", ranks_text(pair)),
        ("loss", _moved(base.loss, other.loss)),
        ("norm", _moved(base.grad_norm, other.grad_norm)),
        ("cosine", "" if cosine is None else f"{ratio_text(cosine)} over all gradients"),
        ("parameters", counts_text(pair, 1)),
        ("spread", spread_text(pair, 1)),
    )
    return (Fact(name, text) for name, text in reported if text)


def _moved(before: float | None, after: float | None) -> str:
    change = change_text(before, after)
    return f"{number(before)} → {number(after)}{f' ({change})' if change else ''}"


def _pair_summaries(pair: Comparison) -> Iterator[SummaryTable]:
    if pair.differences:
        yield SummaryTable(
            title="Known to differ",
            header=("", *(side.letter for side in pair.sides)),
            rows=tuple(
                (
                    SummaryCell(text=one.what, style="soft short"),
                    *(SummaryCell(text=value or "none") for value in one.values),
                )
                for one in pair.differences
            ),
        )


def _notes(comparison: Comparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    lines = tuple(
        renaming_text(renaming, side)
        for side, renamings in zip(comparison.sides, comparison.renamings, strict=True)
        for renaming in renamings
    )
    if lines:
        yield "Names", lines
    if comparison.command:
        yield "Command", (comparison.command,)


def _cards(pair: Comparison) -> Iterator[FindingCard]:
    """Yield the findings of both; new ones are shown as in the other side."""
    base, other = (side.report for side in pair.sides)
    for standing, one in by_standing(pair):
        own, its = one.findings
        finding, report = (its, other) if its is not None else (own, base)
        if finding is None:
            continue
        card = finding_card(finding, report, STANDINGS[standing])
        # The page selects by the modules of the base, in its charts and tables.
        yield replace(card, module=module_of_finding(finding, base), is_mended=standing == "went")


def _overview(comparison: Comparison) -> Tab:
    base = comparison.sides[0]
    charts = (
        compared_curves(comparison),
        compared_sides(comparison, norm_limit(comparison)),
        sides_table(comparison),
    )
    return Tab(
        title=_ALL,
        texts=PageTexts(
            heading="gradscope compare",
            facts=tuple(_overview_facts(comparison)),
            verdict=verdict_text(comparison),
            reasons=tuple(_reasons(comparison)),
            level=_level(comparison),
            warnings=tuple(comparison.verdict.skip_reasons),
            summaries=tuple(_overview_summaries(comparison)),
            notes=tuple(_notes(comparison)),
        ),
        charts=tuple(chart for chart in charts if chart is not None),
        modules=_modules(base),
    )


def _reasons(comparison: Comparison) -> Iterator[str]:
    for one in comparison.verdict.regressions:
        letter = comparison.sides[one.side].letter
        yield f"{letter}: {regression_text(one, comparison)}"


def _overview_facts(comparison: Comparison) -> Iterator[Fact]:
    reported = (
        ("compared", compared_text(comparison)),
        ("ranks", ranks_text(comparison)),
        *((one.what, difference_text(one)) for one in comparison.differences),
    )
    return (Fact(name, text) for name, text in reported if text)


def _overview_summaries(comparison: Comparison) -> Iterator[SummaryTable]:
    yield SummaryTable(
        title="Sides",
        header=("", "side", "of", "loss", "gradient norm", "cosine", "against the base"),
        rows=tuple(_side_row(comparison, position) for position in range(len(comparison.sides))),
    )
    if comparison.findings:
        yield SummaryTable(
            title="Findings",
            header=("", "rule", "line", "finding", "where"),
            rows=tuple(_finding_row(one, comparison.sides) for one in comparison.findings),
        )


def _link(sides: Sequence[Side], position: int, text: str) -> SummaryCell:
    """Return a cell that opens a side's tab; the base has none."""
    return SummaryCell(text=text, style="code", tab=position if position else None)


def _side_row(comparison: Comparison, position: int) -> tuple[SummaryCell, ...]:
    side = comparison.sides[position]
    direction = comparison.directions[position]
    cosine = None if direction is None or direction.total is None else direction.total.cosine
    return (
        SummaryCell(text=side.letter, is_strong=True),
        _link(comparison.sides, position, side.name),
        SummaryCell(text=side_text(side)),
        SummaryCell(text=number(side.loss), is_number=True),
        SummaryCell(text=number(side.grad_norm), is_number=True),
        SummaryCell(text="" if cosine is None else ratio_text(cosine), is_number=True),
        SummaryCell(
            text=counts_text(comparison, position) if position else "the base", style="soft"
        ),
    )


def _is_mended(one: ComparedFinding) -> bool:
    positions = range(1, len(one.findings))
    return {one.standing(position) for position in positions} == {"went"}


def _finding_row(one: ComparedFinding, sides: Sequence[Side]) -> tuple[SummaryCell, ...]:
    position, finding = one.first
    root = sides[position].report.target.root
    return (
        SummaryCell(text=finding.severity, style=f"level {finding.severity}", is_strong=True),
        SummaryCell(text=f"{finding.rule} {finding.name}", style="code short", rule=finding.rule),
        SummaryCell(text=shown_site(finding.location, root), style="code soft"),
        SummaryCell(text=finding.message),
        SummaryCell(text=standing_text(one), style="good" if _is_mended(one) else ""),
    )
