"""The manuals of the rules, in text and in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Literal, assert_never

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.recording.finding import Severity
from gradscope.report.json.shape import SCHEMA_VERSION, Of, Shape, indented
from gradscope.report.page import Page, Trimmed
from gradscope.rules.manual import Manual, manual_of, summary_of
from gradscope.rules.rule import Rule, family_of

ManualFormat = Literal["text", "json", "markdown"]

# Prose is hard to read in longer lines.
_WIDEST = 100
_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold magenta", "note": "bold cyan"}


def render_table(rules: Sequence[type[Rule]], output_format: ManualFormat, console: Console) -> str:
    """Return the rules, a line each, without a last line break; their manuals in JSON."""
    match output_format:
        case "text":
            return _printed(_table(rules, Page.of(console, "")), console)
        case "json":
            return _json(map(manual_of, rules))
        case "markdown":
            return markdown_table(rules)
    assert_never(output_format)


def render_manual(manual: Manual, output_format: ManualFormat, console: Console) -> str:
    """Return the manual of one rule, without a last line break."""
    match output_format:
        case "text":
            return _printed(_manual(manual, Page.of(console, "")), console)
        case "json":
            return _json([manual])
        case "markdown":
            return markdown_manual(manual)
    assert_never(output_format)


def _printed(parts: Iterable[RenderableType], console: Console) -> str:
    with console.capture() as capture:
        for part in parts:
            console.print(Trimmed(part), end="", width=min(console.width, _WIDEST))
    return capture.get().rstrip("\n")


class _Threshold(Shape):
    """A number of a rule that the configuration may change."""

    name: str
    default: float
    text: str


class _Rule(Shape):
    """All that a rule says of itself."""

    code: str
    name: str
    family: str
    level: Severity
    summary: str
    sections: Annotated[
        dict[str, str], Of(lambda manual, _: ((one.heading, one.text) for one in manual.sections))
    ]
    thresholds: tuple[_Threshold, ...]
    explains: tuple[str, ...]
    sample: str


def _json(manuals: Iterable[Manual]) -> str:
    rules = [_Rule.write(manual) for manual in manuals]
    return indented({"schema_version": SCHEMA_VERSION, "rules": rules})


def _table(rules: Sequence[type[Rule]], page: Page) -> Iterator[RenderableType]:
    for family, members in groupby(rules, key=lambda rule: family_of(rule.code)):
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=5)
        grid.add_column(no_wrap=True, min_width=max(len(rule.name) for rule in rules))
        grid.add_column(no_wrap=True, min_width=7)
        grid.add_column(overflow="fold")
        for rule in members:
            name, level = Text(rule.name, style="bold"), Text(rule.level, style=_STYLES[rule.level])
            grid.add_row(rule.code, name, level, page.text(summary_of(rule)))
        yield Text(family, style="bold cyan")
        yield Padding(grid, (0, 0, 0, 2))
    yield Text()
    yield Text(
        "Use gradscope rule CODE to see what a rule measures and how to fix its findings.",
        style="dim",
    )


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


def markdown_table(rules: Iterable[type[Rule]]) -> str:
    """Return the rules as a table, a line each."""
    lines = ["| code | name | level | finds |", "|---|---|---|---|"]
    for rule in rules:
        summary = summary_of(rule).replace("|", "\\|")
        lines.append(f"| {rule.code} | `{rule.name}` | {rule.level} | {summary} |")
    return "\n".join(lines)


def configuration(manual: Manual) -> str:
    """Return the lines of a pyproject.toml that hold the thresholds' defaults."""
    lines = [f"{item.name} = {item.default}" for item in manual.thresholds]
    return "\n".join([f"[tool.gradscope.rules.{manual.name}]", *lines])


def markdown_manual(manual: Manual) -> str:
    """Return the manual of one rule."""
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
