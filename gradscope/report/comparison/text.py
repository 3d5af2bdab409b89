"""The text report of a comparison: what differs, findings, curves, parameters, the verdict."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.columns import Cells, Columns, course
from gradscope.analysis.view import shown_site
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.curves import ComparedCurve, SideCurve
from gradscope.comparison.findings import ComparedFinding
from gradscope.comparison.side import letter_of
from gradscope.phrasing import counted
from gradscope.report.comparison.phrasing import (
    CURVE_NAMES,
    by_side,
    change_text,
    compared_text,
    difference_text,
    findings_text,
    is_news,
    parting_text,
    ranks_text,
    ratio_text,
    renaming_text,
    side_text,
    standing_text,
)
from gradscope.report.comparison.text_parameters import parameters_section
from gradscope.report.comparison.verdict_words import regression_text, verdict_text
from gradscope.report.number_format import figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.run.phrasing import course_text
from gradscope.report.run.text_strips import BROKEN, ZERO, Scale, strip
from gradscope.report.text_findings import SEVERITY_STYLES, finding_parts, hanging
from gradscope.report.text_summary import grid

_IN_FULL = 5
_LINES = 8


def findings_section(
    comparison: Comparison, page: Page, *, is_brief: bool
) -> Iterator[RenderableType]:
    """Yield what came with its code, then a line for each of the others.

    Args:
        comparison: Of the sides.
        page: To write on.
        is_brief: Whether what is still there is left out.
    """
    news = [one for one in comparison.findings if is_news(one)]
    others = [one for one in comparison.findings if not is_news(one)]
    if is_brief:
        others = [one for one in others if None in one.findings]
    if not (news or others):
        if not is_brief:
            yield Text("No findings.", style="dim")
        return
    yield Text("Findings", style="bold").append(f"  {_counts(news, others)}", "not bold dim")
    yield from _in_full(news[:_IN_FULL], comparison, page)
    yield from _lines([*news[_IN_FULL:], *others], comparison, page)


def _in_full(
    news: Sequence[ComparedFinding], comparison: Comparison, page: Page
) -> Iterator[RenderableType]:
    """Yield findings as a report shows them, of the first side in which they are new."""
    for one in news:
        positions = range(1, len(one.findings))
        position = next(at for at in positions if one.standing(at) in ("came", "worse"))
        finding = one.findings[position]
        if finding is not None:
            yield Text(f"{standing_text(one)}:", style="bold magenta")
            yield from finding_parts(finding, comparison.sides[position].report, page)
            yield Text()


def _lines(
    findings: Sequence[ComparedFinding], comparison: Comparison, page: Page
) -> Iterator[RenderableType]:
    for one in findings[:_LINES]:
        yield _line(one, comparison, page)
    if (more := len(findings) - _LINES) > 0:
        yield Text(f"  {page.signs.ellipsis} {more:,} more: --output-format json", style="dim")


def _counts(news: list[ComparedFinding], others: list[ComparedFinding]) -> str:
    gone = [one for one in others if one.standing(len(one.findings) - 1) == "went"]
    stayed = [one for one in others if one not in gone]
    groups = (("new", news), ("gone", gone), ("still there", stayed))
    return "; ".join(f"{name}: {findings_text(group)}" for name, group in groups if group)


def _line(one: ComparedFinding, comparison: Comparison, page: Page) -> Text:
    position, finding = one.first
    root = comparison.sides[position].report.target.root
    site = shown_site(finding.location, root)
    label = f"{finding.severity}[{finding.rule}]"
    at = f" ({site})" if site else ""
    head = f"{standing_text(one)}: "
    words = page.spell(f"{head}{label} {finding.name}: {finding.message}{at}")
    text = hanging(words, page, indent=2, further=4)
    start = 2 + len(page.spell(head))
    text.stylize("dim", 0, start)
    text.stylize(SEVERITY_STYLES[finding.severity], start, start + len(label))
    return text


_SHOWN = 8
_SIDES = 8
_GAP, _COURSE, _EXTREME = 2, 21, 28
_LABEL, _LONGEST, _WIDE = 12, 84, 112
_STYLES = {BROKEN: "bold red", ZERO: "magenta"}


def curves_section(comparison: Comparison, page: Page) -> Iterator[RenderableType]:
    """Yield each curve of every side on one scale, and where sides leave the base."""
    if not comparison.curves:
        return
    title = hanging(f"Curves  {_title(comparison.curves)}", page, further=_GAP)
    title.stylize("dim")
    title.stylize("not dim bold", 0, len("Curves"))
    yield title
    columns = Columns(_steps(comparison.curves), _width(page))
    known = ""
    for curve in comparison.curves[:_SHOWN]:
        if curve.optimizer and curve.optimizer != known:
            yield page.text(f"  {curve.optimizer}")
        known = curve.optimizer
        yield _strips(curve, columns, page)
        yield from _partings(curve, comparison, page)
    if (more := len(comparison.curves) - _SHOWN) > 0:
        yield Text(f"  {page.signs.ellipsis} {counted(more, 'more curve')}", style="dim")


def _title(curves: Sequence[ComparedCurve]) -> str:
    steps = _steps(curves)
    kinds = {curve.kind for curve in curves}
    words = [
        f"steps {steps[0]:,} to {steps[-1]:,} from left to right",
        *(["loss: summed over backward passes"] if "loss" in kinds else []),
        *(["norm: all gradients"] if "norm" in kinds else []),
    ]
    return "; ".join(words)


def _steps(curves: Sequence[ComparedCurve]) -> list[int]:
    """Return the steps of all curves."""
    steps = {step for curve in curves for side in curve.sides if side for step in side.steps}
    return sorted(steps)


def _width(page: Page) -> int:
    extreme = _EXTREME + _GAP if page.width >= _WIDE else 0
    return max(min(page.width - _LABEL - _COURSE - 2 * _GAP - extreme, _LONGEST), 8)


def _strips(curve: ComparedCurve, columns: Columns, page: Page) -> Table:
    drawn = [None if side is None else _cells(curve, side, columns) for side in curve.sides]
    known = tuple(cell for cells in drawn if cells is not None for cell in cells)
    scale = Scale.linear(known) if curve.kind == "loss" else Scale.decades([known])
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(width=_LABEL - _GAP, overflow="fold")
    table.add_column(width=columns.count, no_wrap=True)
    table.add_column(width=_COURSE, overflow="fold")
    table.add_column(style="dim")
    for position, (side, cells) in enumerate(zip(curve.sides[:_SIDES], drawn, strict=False)):
        row = [Text(_label(curve, position, page))]
        if side is None or cells is None:
            table.add_row(*row, Text("not measured", style="dim"))
            continue
        text = Text()
        for sign in strip(cells, scale, page.signs):
            text.append(sign, _STYLES.get(sign, "cyan" if position == 0 else "yellow"))
        row += [text, Text(_course(side, cells, page))]
        table.add_row(*row, *([Text(_extreme(curve, side, page))] if page.width >= _WIDE else []))
    if (more := len(curve.sides) - _SIDES) > 0:
        table.add_row(Text(f"  {page.signs.ellipsis} {more:,} more"))
    return table


def _cells(curve: ComparedCurve, side: SideCurve, columns: Columns) -> Cells:
    points = list(zip(side.steps, side.values, strict=True))
    return columns.mean(points) if curve.kind == "loss" else columns.largest(points)


def _label(curve: ComparedCurve, position: int, page: Page) -> str:
    """Return `  loss  A`; the name of the curve stands with the first side alone."""
    width = _LABEL - 2 * _GAP - 2
    return f"  {CURVE_NAMES[curve.kind] if position == 0 else '':{width}} {letter_of(position)}"


def _course(side: SideCurve, cells: Cells, page: Page) -> str:
    return course_text(course(list(zip(side.steps, side.values, strict=True)), cells), page.signs)


def _extreme(curve: ComparedCurve, side: SideCurve, page: Page) -> str:
    found = course(list(zip(side.steps, side.values, strict=True)), ())
    if found.first_nonfinite is not None:
        return f"non-finite from step {found.first_nonfinite:,}"
    extreme = found.lowest if curve.kind == "loss" else found.highest
    if extreme is None:
        return ""
    word = "lowest" if curve.kind == "loss" else "largest"
    return f"{word} {figure(extreme.value, page.signs)} at step {extreme.step:,}"


def _partings(curve: ComparedCurve, comparison: Comparison, page: Page) -> Iterator[Text]:
    told = [
        (letter_of(position), parting_text(curve, position, comparison, page.signs))
        for position in range(1, len(curve.sides))
    ]
    for letters, words in by_side(told):
        yield hanging(f"{letters}: {words}", page, indent=_GAP, further=_GAP)


_RENAMINGS_SHOWN = 3
_SIDES_SHOWN = 16
_GAP = 2


def render_text(comparison: Comparison, console: Console, *, top: int, is_brief: bool) -> None:
    """Print a comparison on a console, which decides width, colour and characters.

    Args:
        comparison: What to print.
        console: Where to print.
        top: How many parameters are listed.
        is_brief: Whether what is equal or still there is left out.
    """
    page = Page.of(console, comparison.sides[0].report.target.root)
    for block in _blocks(comparison, page, top=top, is_brief=is_brief):
        while block and isinstance(block[-1], Text) and not block[-1]:
            block.pop()  # between blocks is one empty line
        for part in block:
            console.print(Trimmed(part), end="")
        if block:
            console.print()
    for part in _verdict(comparison, page):
        console.print(Trimmed(part), end="")


def _blocks(
    comparison: Comparison, page: Page, *, top: int, is_brief: bool
) -> Iterator[list[RenderableType]]:
    yield list(_header(comparison, page))
    yield list(findings_section(comparison, page, is_brief=is_brief))
    yield list(_numbers(comparison, page))
    yield list(curves_section(comparison, page))
    yield list(parameters_section(comparison, page, top=top))


def _header(comparison: Comparison, page: Page) -> Iterator[RenderableType]:
    title = Text("gradscope compare", style="bold cyan")
    sides = comparison.sides
    names = page.text(f" {' '.join(side.name for side in sides)}", "bold")
    # They stand below too.
    yield title.append_text(names) if len(title) + len(names) <= page.width else title
    rows = [
        (side.letter, page.text(_side(comparison, position))) for position, side in enumerate(sides)
    ]
    if (more := len(rows) - _SIDES_SHOWN) > 0:
        rows[_SIDES_SHOWN:] = [(page.signs.ellipsis, Text(f"{more:,} more"))]
    differing = [
        f"{one.what}: {difference_text(one, page.signs)}" for one in comparison.differences
    ]
    rows += _titled("differs", differing, page)
    rows += _titled("names", list(_renamings(comparison)), page)
    told = (("ranks", ranks_text(comparison)), ("compared", compared_text(comparison)))
    rows += [(title, Text(words)) for title, words in told if words]
    yield grid(rows)


def _titled(title: str, lines: Sequence[str], page: Page) -> list[tuple[str, Text]]:
    """Return lines, of which the first alone has the title."""
    return [("" if turn else title, page.text(line)) for turn, line in enumerate(lines)]


def _side(comparison: Comparison, position: int) -> str:
    side = comparison.sides[position]
    words = side_text(side)
    return words if side.name in words else f"{side.name}: {words}"


def _renamings(comparison: Comparison) -> Iterator[str]:
    for side, renamings in zip(comparison.sides, comparison.renamings, strict=True):
        for renaming in renamings[:_RENAMINGS_SHOWN]:
            yield renaming_text(renaming, side)
        if (more := len(renamings) - _RENAMINGS_SHOWN) > 0:
            yield f"{more:,} more such modules in {side.letter}"


def _numbers(comparison: Comparison, page: Page) -> Iterator[RenderableType]:
    """Yield loss and norm of each side; those of runs are with their curves."""
    if any(curve.kind == "loss" for curve in comparison.curves):
        return
    table = Table.grid(padding=(0, _GAP, 0, 0))
    base = comparison.sides[0]
    for position, side in enumerate(comparison.sides):
        cells = []
        for name, own, before in (
            ("loss", side.loss, base.loss),
            ("gradient norm", side.grad_norm, base.grad_norm),
        ):
            cells += [Text(name, style="dim"), Text(figure(own, page.signs))]
            cells.append(
                Text(change_text(before, own, page.signs) if position else "", style="dim")
            )
        direction = comparison.directions[position]
        if direction is not None and direction.total is not None:
            cosine = direction.total.cosine
            cells += [Text("cosine", style="dim"), Text(ratio_text(cosine, page.signs))]
        table.add_row(Text(side.letter, style="bold"), *cells)
    yield table


def _verdict(comparison: Comparison, page: Page) -> Iterator[RenderableType]:
    regressions = comparison.verdict.regressions
    for regression in regressions:
        letter = comparison.sides[regression.side].letter
        words = regression_text(regression, comparison, page.signs)
        text = hanging(page.spell(f"{letter}: {words}"), page, indent=_GAP, further=len(letter) + 2)
        text.stylize("bold", _GAP, _GAP + len(letter) + 1)
        yield text
    outcome = comparison.verdict.outcome
    is_bad = outcome == "unjudged" or (outcome == "failed" and comparison.is_check)
    style = "bold red" if is_bad else "bold" if regressions else "bold green"
    text = Text(page.spell(verdict_text(comparison)), style=style, overflow="fold")
    if outcome == "failed" and not comparison.is_check:
        text.append(" Use --fail-on-regression to exit with code 1.", "not bold dim")
    yield text
