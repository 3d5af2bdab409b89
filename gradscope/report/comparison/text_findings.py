"""Findings in the text report of a comparison: new ones with their code, others in a line."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from gradscope.analysis.view import shown_site
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.findings import ComparedFinding
from gradscope.report.comparison.words import findings_text, is_news, standing_text
from gradscope.report.page import Page
from gradscope.report.text_findings import SEVERITY_STYLES, finding_parts, hanging

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
            yield Text("No findings in any of them.", style="dim")
        return
    yield Text("Findings", style="bold").append(f"  {_counts(news, others)}", "not bold dim")
    yield from _in_full(news[:_IN_FULL], comparison, page)
    yield from _lines([*news[_IN_FULL:], *others], comparison, page)


def _in_full(
    news: Sequence[ComparedFinding], comparison: Comparison, page: Page
) -> Iterator[RenderableType]:
    """Yield findings as a report shows them, of the first side in which they are new."""
    for one in news:
        places = range(1, len(one.findings))
        place = next(at for at in places if one.standing(at) in ("came", "worse"))
        finding = one.findings[place]
        if finding is not None:
            yield Text(f"{standing_text(one)}:", style="bold magenta")
            yield from finding_parts(finding, comparison.sides[place].report, page)
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
    place, finding = one.first
    root = comparison.sides[place].report.target.root
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
