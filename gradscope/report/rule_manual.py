"""The manuals of the rules, as `gradscope rule` shows them."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, assert_never

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.recording.finding import Severity
from gradscope.report.page import Page, Trimmed
from gradscope.rules.manual import Manual

ManualFormat = Literal["text", "json", "markdown"]

SCHEMA_VERSION = "1.0"
_WIDEST = 100
_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold magenta", "note": "bold cyan"}


def render_manuals(
    manuals: Sequence[Manual], output_format: ManualFormat, console: Console, *, is_table: bool
) -> str:
    """Return manuals, or a table of the rules with a line each, without a last line break."""
    match output_format:
        case "text":
            page = Page.of(console, "")
            parts = _table(manuals, page) if is_table else _manual(manuals[0], page)
            with console.capture() as capture:
                for part in parts:
                    console.print(Trimmed(part), end="", width=min(console.width, _WIDEST))
            return capture.get().rstrip("\n")
        case "json":
            rules = [_object(manual) for manual in manuals]
            return json.dumps({"schema_version": SCHEMA_VERSION, "rules": rules}, indent=2)
        case "markdown":
            return markdown_table(manuals) if is_table else _markdown(manuals[0])
    assert_never(output_format)


def markdown_table(manuals: Sequence[Manual]) -> str:
    """Return the rules as a table, a line each."""
    lines = ["| code | name | level | finds |", "|---|---|---|---|"]
    for manual in manuals:
        cells = (manual.code, f"`{manual.name}`", manual.level, manual.summary.replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def configuration(manual: Manual) -> str:
    """Return the lines of a pyproject.toml that hold the thresholds' defaults."""
    lines = [f"{item.name} = {item.default}" for item in manual.thresholds]
    return "\n".join([f"[tool.gradscope.rules.{manual.name}]", *lines])


def _table(manuals: Sequence[Manual], page: Page) -> Iterator[RenderableType]:
    for family, members in groupby(manuals, key=lambda manual: manual.family):
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=5)
        grid.add_column(no_wrap=True, min_width=max(len(manual.name) for manual in manuals))
        grid.add_column(no_wrap=True, min_width=7)
        grid.add_column(overflow="fold")
        for manual in members:
            level = Text(manual.level, style=_STYLES[manual.level])
            name, summary = Text(manual.name, style="bold"), page.text(manual.summary)
            grid.add_row(manual.code, name, level, summary)
        yield Text(family, style="bold cyan")
        yield Padding(grid, (0, 0, 0, 2))
    yield Text()
    yield Text("gradscope rule CODE shows what a rule measures and how to fix it.", style="dim")


def _manual(manual: Manual, page: Page) -> Iterator[RenderableType]:
    title = Text(f"{manual.code} {manual.name}", style="bold")
    title.append(f"  {manual.level}", style=_STYLES[manual.level])
    yield title.append(f"  {manual.family}", style="not bold dim")
    yield page.text(manual.summary)
    for section in manual.sections:
        yield from _section(section.heading, section.text, page)
    if manual.thresholds:
        yield Text()
        yield Text("Thresholds", style="bold cyan")
    for threshold in manual.thresholds:
        yield Text(f"  {threshold.name} = {threshold.default}", style="bold")
        yield Padding(page.text(threshold.text), (0, 0, 0, 6))
    if manual.thresholds:
        yield from _section("In pyproject.toml", configuration(manual), page)
    if manual.explains:
        yield from _section("Explains findings of", ", ".join(manual.explains), page)
    yield from _section("Sample", f"{manual.sample} in gradscope's repository", page)


def _section(heading: str, text: str, page: Page) -> Iterator[RenderableType]:
    yield Text()
    yield Text(heading, style="bold cyan")
    for line in text.split("\n"):
        yield Padding(page.text(line), (0, 0, 0, 2))


def _markdown(manual: Manual) -> str:
    blocks = [f"# {manual.code} {manual.name}", f"Level {manual.level}, family {manual.family}."]
    blocks.append(manual.summary)
    for section in manual.sections:
        blocks += [f"## {section.heading}", section.text]
    if manual.thresholds:
        items = (f"- `{item.name} = {item.default}`: {item.text}" for item in manual.thresholds)
        blocks += ["## Thresholds", "\n".join(items)]
        blocks.append(f"```toml\n{configuration(manual)}\n```")
    if manual.explains:
        blocks += ["## Explains findings of", ", ".join(manual.explains)]
    return "\n\n".join([*blocks, "## Sample", f"`{manual.sample}`"])


def _object(manual: Manual) -> dict[str, object]:
    return {
        "code": manual.code,
        "name": manual.name,
        "family": manual.family,
        "level": manual.level,
        "summary": manual.summary,
        "sections": {section.heading: section.text for section in manual.sections},
        "thresholds": [
            {"name": item.name, "default": item.default, "text": item.text}
            for item in manual.thresholds
        ],
        "explains": manual.explains,
        "sample": manual.sample,
    }
