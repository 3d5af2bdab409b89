"""The tensors worth looking at, or all of them, in the text report."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from gradscope.analysis.folding import Span, joined_numbers, joined_paths, span
from gradscope.analysis.report import Report
from gradscope.analysis.rows import TensorRow
from gradscope.analysis.selection import Group, select_tensors, tensors_below
from gradscope.analysis.view import ViewOptions
from gradscope.report.number_format import broken_text, made_by, span_figure
from gradscope.report.page import Page

_GAP = 2
_LINE = 44
_BESIDE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Tensors of one operation in one line, in modules that repeat each other."""

    title: str
    rows: tuple[TensorRow, ...]

    @property
    def norm(self) -> Span | None:
        return span(None if row.grad is None else row.grad.norm for row in self.rows)

    @property
    def module(self) -> str | None:
        modules = [row.module for row in self.rows if row.module is not None]
        return joined_paths(modules) if modules else None


def tensor_section(report: Report, view: ViewOptions, page: Page) -> Iterator[Table | Text]:
    """Yield a title, a table, and how much was left out."""
    if view.tensors == "all":
        rows = tensors_below(report, view)
        if rows:
            yield Text("Tensors", style="bold")
            yield _table([_Entry(title="", rows=(row,)) for row in rows], page)
        return
    groups = select_tensors(report, view) if view.tensors == "top" else ()
    if not groups:
        return
    title = Text("Notable tensors", style="bold")
    for group in groups:
        if group.note:
            title.append(f"  {group.kind}: {group.note}", style="not bold dim")
    yield title
    yield _table([entry for group in groups for entry in _entries(group)], page)
    for group in groups:
        if group.folded:
            words = f"{page.signs.ellipsis} {group.folded:,} more with {group.title}"
            yield Text(f"  {words}: use --top to show more", style="dim")


def _entries(group: Group[TensorRow]) -> list[_Entry]:
    """Join the group's rows that one line made in modules of one kind."""
    alike: dict[Hashable, list[TensorRow]] = {}
    times: Counter[Hashable] = Counter()
    for row in group.rows:
        key = (row.operation, row.slot, row.site, row.shape, _kind(row.module), row.reason)
        # Two tensors of one call are never one row.
        turn = times[key, row.module, row.call]
        times[key, row.module, row.call] += 1
        alike.setdefault((key, turn), []).append(row)
    return [
        _Entry(title=group.kind if position == 0 else "", rows=tuple(rows))
        for position, rows in enumerate(alike.values())
    ]


def _kind(module: str | None) -> tuple[str, ...]:
    """Return the path's names, with one sign for all numbers."""
    names = () if module is None else module.split(".")
    return tuple("0" if name.isdecimal() else name for name in names)


def _table(entries: list[_Entry], page: Page) -> Table:
    norms = [_norm(entry, page) for entry in entries]
    titles = max(len(entry.title) for entry in entries)
    room = page.width - titles - max(len("norm"), *map(len, norms)) - 2 * _GAP
    whats = [_what(entry, page, room) for entry in entries]
    beside = room - max(map(len, whats)) - _GAP
    # The line goes beside the tensor where there is room for it, else below.
    is_wide = beside >= _BESIDE
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("norm", justify="right", no_wrap=True)
    table.add_column("tensor and where it was made", overflow="fold")
    if is_wide:
        table.add_column("line", overflow="fold")
    for entry, norm, what in zip(entries, norms, whats, strict=True):
        position = _position(entry.rows[0], page, beside if is_wide else room)
        title = Text(entry.title, style="dim")
        if is_wide:
            table.add_row(title, norm, what, position)
        else:
            table.add_row(title, norm, what.append("\n").append_text(position))
    return table


def _norm(entry: _Entry, page: Page) -> Text:
    grad = entry.rows[0].grad
    if grad is None:
        return Text(page.signs.dash, style="dim")
    text = span_figure(entry.norm, page.signs)
    if grad.is_broken:
        return Text(text, style="bold red")
    return Text(text, style="magenta" if grad.norm == 0.0 else "")


def _what(entry: _Entry, page: Page, width: int) -> Text:
    row = entry.rows[0]
    text = page.text(made_by(row))
    if entry.module is not None:
        module = entry.module or "the model"
        is_long = len(text) + len(" in ") + len(module) > width
        text.append(" in\n" if is_long else " in ").append_text(page.path(module, width))
    if calls := _calls(entry.rows):
        text.append(f" ({calls})")
    if row.shape is not None:
        text.append(f" [{', '.join(map(str, row.shape))}]", style="dim")
    if row.grad is not None and row.grad.is_broken:
        counts = broken_text(row.grad)
        text.append(f" {counts}", style="bold red")
    if row.grad is None and row.reason:
        text.append(f" {page.spell(row.reason)}", style="magenta")
    return text


def _calls(rows: tuple[TensorRow, ...]) -> str:
    """Return which calls of their module they are of; nothing where it is the first alone."""
    calls = {row.call for row in rows if row.call is not None}
    if len(calls) > 1:
        return f"calls {joined_numbers(calls)}"
    return f"call {call}" if (call := max(calls, default=0)) else ""


def _position(row: TensorRow, page: Page, width: int) -> Text:
    text = page.position(row.site, min(width, _LINE))
    if row.site is not None and row.site.source:
        room = max(width - len(text) - 2, 0)
        source = page.spell(row.site.source)
        if len(source) > room:
            source = source[: max(room - 1, 0)] + page.signs.ellipsis[0] if room >= 12 else ""
        text.append(f"  {source}", style="dim")
    return text
