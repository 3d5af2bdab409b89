"""The text report of a comparison: what differs, findings, curves, parameters, the verdict."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.comparison.comparison import Comparison
from gradscope.report.comparison.figures import change_text, ratio_text
from gradscope.report.comparison.text_curves import curves_section
from gradscope.report.comparison.text_findings import findings_section
from gradscope.report.comparison.text_parameters import parameters_section
from gradscope.report.comparison.verdict_words import regression_text, verdict_text
from gradscope.report.comparison.words import (
    compared_text,
    difference_text,
    ranks_text,
    renaming_text,
    side_text,
)
from gradscope.report.figures import figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.text_findings import hanging
from gradscope.report.text_summary import grid

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
    rows = [(side.letter, page.text(_side(comparison, place))) for place, side in enumerate(sides)]
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


def _side(comparison: Comparison, place: int) -> str:
    side = comparison.sides[place]
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
    for place, side in enumerate(comparison.sides):
        cells = []
        for name, own, before in (
            ("loss", side.loss, base.loss),
            ("gradient norm", side.grad_norm, base.grad_norm),
        ):
            cells += [Text(name, style="dim"), Text(figure(own, page.signs))]
            cells.append(Text(change_text(before, own, page.signs) if place else "", style="dim"))
        direction = comparison.directions[place]
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
    is_bad = outcome == "unjudged" or (outcome == "failed" and comparison.is_gate)
    style = "bold red" if is_bad else "bold" if regressions else "bold green"
    text = Text(page.spell(verdict_text(comparison)), style=style, overflow="fold")
    if outcome == "failed" and not comparison.is_gate:
        text.append(" --fail-on-regression makes it exit code 1.", "not bold dim")
    yield text
