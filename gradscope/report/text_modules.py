"""The module tree of the text report, with bars on one logarithmic scale."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from gradscope.analysis.folding import (
    FoldedModule,
    cut_below,
    fitting_depth,
    fold_modules,
    gradient_state,
    merge_containers,
    without_plain,
)
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.report.bars import LogScale, axis, bar, sparkline
from gradscope.report.number_format import short_count, span_figure
from gradscope.report.page import Page

ROWS = 26
"""The tree is as deep as fits into so many rows, unless the reader says how deep."""

_GAP = 2
_FULL = 120
_WIDE = 100
_NARROW = 72
_TINY = 52
_TREND = 14
_TREND_TITLE = "first to last"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A row of the tree."""

    module: FoldedModule
    level: int


def module_section(report: Report, view: ViewOptions, page: Page) -> Iterator[Table | Text]:
    """Yield the tree's title, its table and what it leaves out."""
    rows = modules_below(report, view)
    trees = [tree for root in fold_modules(rows, gradient_state) if (tree := without_plain(root))]
    depth = _depth(rows, trees, view)
    shown = [merge_containers(cut_below(tree, depth)) for tree in trees]
    lines = [line for tree in shown for line in _lines(tree, 0)]
    if not lines:
        return
    yield _title(page)
    yield _table(lines, page)
    if hidden := _hidden(trees, shown):
        words = f"{page.signs.ellipsis} {counted(hidden, 'row')} of deeper modules folded"
        yield Text(f"  {words}: use --depth N to show them", style="dim")


def _depth(rows: tuple[ModuleRow, ...], trees: list[FoldedModule], view: ViewOptions) -> int:
    if view.depth is not None and rows:
        return min(row.depth for row in rows) + view.depth
    return fitting_depth(trees, ROWS)


def _hidden(trees: list[FoldedModule], shown: list[FoldedModule]) -> int:
    whole = sum(merge_containers(tree).size() for tree in trees)
    return whole - sum(tree.size() for tree in shown)


def _title(page: Page) -> Text:
    text = Text("Modules", style="bold")
    note = "gradient norm over a module's parameters, log scale"
    if page.width < _NARROW:
        return text
    gain = "gain: gradient norm at a module's input over that at its output"
    joint = "; " if page.width >= _FULL else "\n"
    return text.append(f"  {note}{joint}{gain}", style="not bold dim")


def _lines(module: FoldedModule, level: int) -> Iterator[_Line]:
    yield _Line(module=module, level=level)
    for child in module.children:
        yield from _lines(child, level + 1)


def _table(lines: list[_Line], page: Page) -> Table:
    norms = [_norm(line, page) for line in lines]
    gains = [span_figure(line.module.gain, page.signs) for line in lines]
    layout = _layout(lines, page, norm=max(map(len, norms)), gain=max(map(len, gains)))
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for column in layout.columns:
        is_name, is_number = column == "module", column in ("params", "norm", "gain")
        table.add_column(
            "" if column == "bar" else column,
            overflow="fold",
            no_wrap=not is_name,
            justify="right" if is_number else "left",
            width=layout.bar if column == "bar" else _TREND if column == _TREND_TITLE else None,
        )
    scale = LogScale.over([line.module.grad_norm for line in lines], layout.bar)
    for line, norm, gain in zip(lines, norms, gains, strict=True):
        cells = {
            "module": module_label(line.module, line.level, layout.label, page),
            "params": Text(short_count(line.module.rows[0].numel)),
            "norm": norm,
            "bar": bar(line.module.grad_norm, scale, page.signs) if scale else Text(),
            _TREND_TITLE: trend(line.module, page),
            "gain": Text(gain),
        }
        table.add_row(*(cells[column] for column in layout.columns))
    for marks in axis(scale, page.signs) if scale else ():
        table.add_row(*(marks if column == "bar" else "" for column in layout.columns))
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Which columns the page is wide enough for, and how wide they are."""

    columns: tuple[str, ...]
    bar: int
    label: int


def _layout(lines: list[_Line], page: Page, *, norm: int, gain: int) -> _Layout:
    widths = {"norm": norm}
    if page.width >= _TINY:
        widths["params"] = len("params")
    if page.width >= _WIDE and any(line.module.copies > 2 for line in lines):
        widths[_TREND_TITLE] = _TREND
    if page.width >= _NARROW:
        widths["gain"] = gain
    # The bar and the names share what is left.
    room = page.width - sum(widths.values()) - _GAP * (len(widths) + 1)
    bar_width = min(max(room // 4, 8), 32)
    order = ("module", "params", "norm", "bar", _TREND_TITLE, "gain")
    return _Layout(
        columns=tuple(name for name in order if name in ("module", "bar") or name in widths),
        bar=bar_width,
        label=room - bar_width,
    )


def trend(module: FoldedModule, page: Page) -> Text:
    """Return a sparkline of the norms' logarithms over the repeated modules."""
    norms = [row.grad_norm for row in module.rows]
    known = [math.log10(norm) for norm in norms if norm and math.isfinite(norm)]
    if len(known) < 3 or len(known) < len(norms):
        return Text()
    last = len(known) - 1
    count = min(len(known), _TREND)
    chosen = [known[i * last // (count - 1)] for i in range(count)]
    return Text(sparkline(chosen, page.signs, least=1.0))


def _norm(line: _Line, page: Page) -> Text:
    norm = line.module.grad_norm
    text = span_figure(norm, page.signs)
    if norm is None:
        row = line.module.rows[0]
        if row.trainable_parameters:
            return Text("none", style="red")
        return Text("frozen" if row.parameters else text, style="dim")
    if not math.isfinite(norm.high):
        return Text(text, style="bold red")
    return Text(text, style="magenta" if norm.high == 0.0 else "")


def module_label(module: FoldedModule, level: int, width: int, page: Page) -> Text:
    """Return a module's name, how many it stands for, and its class, in a column of that width."""
    class_name = page.spell(module.rows[0].class_name)
    # Names of deep modules keep half of the column.
    indent = min(2 * level, width // 2)
    if not module.name:
        return Text(class_name, style="bold", overflow="fold")
    text = page.path(module.name, width - indent, indent=indent)
    if module.copies > 1:
        text.append(f" {page.signs.times}{module.copies}", style="bold")
    if (calls := len(module.rows[0].calls)) > 1:
        text.append(f" ({calls} calls)")
    if module.name == module.rows[0].class_name:
        return text
    room = width - len(text) - 1
    if len(class_name) <= room:
        text.append(f" {class_name}", style="dim")
    elif room >= 8:
        text.append(f" {class_name[: room - 1]}{page.signs.ellipsis[0]}", style="dim")
    return text
