"""The text report of a check: findings with their code, then a line a target and the verdict."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.check.decision import exit_code, outcome_of
from gradscope.check.results import CheckedFinding, CheckResult, Outcome, TargetResult
from gradscope.errors import ExitCode
from gradscope.report.check.phrasing import (
    closing_text,
    failure_text,
    found_text,
    measured_text,
    remarks,
    seeds_text,
    unjudged_rules,
    when_text,
    with_reports,
)
from gradscope.report.page import Page, Trimmed
from gradscope.report.text_findings import detail, finding_parts, hanging

_WORDS: dict[Outcome, str] = {"passed": "passed", "failed": "failed", "unjudged": "not checked"}
_STYLES: dict[Outcome, str] = {"passed": "green", "failed": "bold red", "unjudged": "bold red"}


def render_text(result: CheckResult, console: Console, *, is_brief: bool) -> None:
    """Print the report on a console, which decides width, colour and characters.

    Args:
        result: What was found.
        console: Where to print.
        is_brief: Whether targets that pass and rules that could not judge are left out.
    """
    for part in _parts(result, console, is_brief=is_brief):
        console.print(Trimmed(part), end="")


def _parts(result: CheckResult, console: Console, *, is_brief: bool) -> Iterator[RenderableType]:
    plain = Page.of(console, "")
    is_many = len(result.targets) > 1
    for target in result.targets:
        if is_many and any(True for _ in target.counted()):
            yield plain.text(target.name, "bold underline")
            yield Text()
        yield from _findings(target, console)
    yield _table(result, plain, is_brief=is_brief)
    if not is_brief:
        yield from _skipped(result, plain)
    for remark in remarks(result):
        yield hanging(plain.spell(remark), plain)
    style = "bold green" if _is_green(result) else "bold red"
    yield Text()
    yield Text(plain.spell(closing_text(result)), style=style)


def _is_green(result: CheckResult) -> bool:
    return exit_code(result) is ExitCode.OK


def _findings(target: TargetResult, console: Console) -> Iterator[RenderableType]:
    for item, report in with_reports(target, target.counted()):
        page = Page.of(console, report.target.root)
        yield from finding_parts(item.finding, report, page)
        yield from _standing(item, target, page)
        yield Text()


def _standing(item: CheckedFinding, target: TargetResult, page: Page) -> Iterator[RenderableType]:
    for name, text in (
        ("when", when_text(item, target)),
        ("seeds", seeds_text(item, target)),
        ("baseline", f"known, now worse: {item.worsened}" if item.worsened else ""),
    ):
        if text:
            yield detail(name, text, page)


def _table(result: CheckResult, page: Page, *, is_brief: bool) -> Table:
    """Return a row a target: how it came out, and what was measured or why nothing was."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for target in result.targets:
        outcome = outcome_of(target, result)
        if is_brief and outcome == "passed":
            continue
        table.add_row(
            Text(_WORDS[outcome], style=_STYLES[outcome]),
            page.text(target.name, "bold"),
            page.text("; ".join(_details(target, page))),
        )
    return table


def _details(target: TargetResult, page: Page) -> Iterator[str]:
    for failure in target.failures:
        seed = "" if failure.seed is None or len(target.failures) == 1 else f"seed {failure.seed}: "
        yield f"{seed}{failure_text(failure)}"
    if target.runs:
        yield found_text(target.findings)
        yield measured_text(target, page.signs)


def _skipped(result: CheckResult, page: Page) -> Iterator[RenderableType]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for target in result.targets:
        for codes, reason in unjudged_rules(target):
            by_reason.setdefault((codes, reason), []).append(target.name)
    if not by_reason:
        return
    yield Text()
    yield Text("Not applicable", style="bold")
    for (codes, reason), names in by_reason.items():
        where = "" if len(names) == len(result.targets) else f" ({', '.join(names)})"
        yield hanging(page.spell(f"{codes}: {reason}{where}"), page, indent=2)
