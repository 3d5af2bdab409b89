"""The gradient norms of layers as a heat strip: a column a look, warmer for larger."""

from rich.text import Text

from gradscope.analysis.live_run import LayerNorms, LiveLayer
from gradscope.report.figures import figure
from gradscope.report.live.curve_lines import LineLayout, drawn
from gradscope.report.page import Page
from gradscope.report.run.strips import Scale

_HEAT = ("#4a5fb5", "#3f7fc8", "#2f9fc0", "#27a98f", "#4fae5a", "#93ab35", "#c9a227", "#e5801f")
"""From cold to warm, as many as a strip has levels; told apart on dark and on light ground."""


def layer_lines(norms: LayerNorms, layout: LineLayout, page: Page, most: int) -> list[Text]:
    """Return a title and a line for each layer; nothing where no gradient was measured."""
    rows = norms.rows(most - 1, layout.strip)
    if not any(cell is not None for row in rows for cell in row.cells):
        return []
    shown = rows if len(rows) < most else rows[: most - 2]
    scale = Scale.decades(row.cells for row in shown)
    lines = [_title(norms, scale, layout, page)]
    for row in shown:
        tail = figure(row.cells[-1], page.signs)
        heat = drawn(row.cells, scale, page.signs, _HEAT)
        lines.append(layout.line(_label(row, layout.name, page), "", heat, tail))
    if more := len(rows) - len(shown):
        lines.append(Text(f"  {page.signs.ellipsis} {more:,} more", style="dim"))
    return lines


def _title(norms: LayerNorms, scale: Scale, layout: LineLayout, page: Page) -> Text:
    signs = page.signs
    steps = norms.steps[-layout.strip :]
    low, high = figure(scale.low, signs), figure(scale.high, signs)
    first, last = f"{steps[0]:,}", f"{steps[-1]:,}"
    span = f"step {last}" if first == last else f"steps {first}{signs.ellipsis}{last}"
    ends = f"{signs.levels[0]} {low} to {signs.levels[-1]} {high}"
    title = Text("layers  ", style="bold")
    words = (f"gradient norms of {span}, {ends}", f"{span}, {ends}", ends)
    room = page.width - title.cell_len
    fitting = next((text for text in words if len(text) <= room), "")
    return title.append(fitting, "not bold dim")


def _label(row: LiveLayer, width: int, page: Page) -> Text:
    """Return a layer's name and class in a line of that width."""
    module, signs = row.module, page.signs
    class_name = page.spell(module.rows[0].class_name)
    copies = f" {signs.times}{module.copies}" if module.copies > 1 else ""
    indent = min(2 * row.level, width // 3)
    name = page.shorten(page.spell(module.name or class_name), width - indent - len(copies))
    text = Text(" " * indent).append(name).append(copies, "bold")
    room = width - text.cell_len - 1
    if module.name and class_name != module.name and len(class_name) <= room:
        text.append(f" {class_name}", "dim")
    return text
