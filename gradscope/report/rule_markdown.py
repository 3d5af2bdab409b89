"""The manuals of the rules in Markdown."""

from collections.abc import Iterable

from gradscope.rules.manual import Manual, summary_of
from gradscope.rules.rule import Rule


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
