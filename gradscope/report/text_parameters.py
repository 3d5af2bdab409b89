"""The parameters worth looking at, in the text report."""

from collections.abc import Iterator

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow
from gradscope.analysis.selection import Group, GroupKind, select_parameters
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.report.number_format import broken_text, figure
from gradscope.report.page import Page

_WIDE = 120
_MIDDLE = 92
_NARROW = 72
_GAP = 2

STYLES: dict[GroupKind, str] = {
    "non-finite": "bold red",
    "none": "magenta",
    "zero": "magenta",
    "unmeasured": "dim",
}


def parameter_section(
    report: Report, view: ViewOptions, page: Page
) -> Iterator[Table | Text | Padding]:
    """Yield the groups without numbers as lists under their reason, the others as a table."""
    groups = select_parameters(report, view)
    if not groups:
        return
    title = Text("Notable parameters", style="bold")
    yield (
        title if report.training_run is None else title.append("  as last measured", "not bold dim")
    )
    for group in groups:
        if _is_list(group):
            yield from _list(group, page)
    measured = [group for group in groups if not _is_list(group)]
    if measured:
        yield Text("/ weight: gradient norm over weight norm", style="dim", overflow="fold")
        yield _table(measured, report, page)
    for group in measured:
        if group.folded:
            yield _more(group, page)


def _is_list(group: Group[ParameterRow]) -> bool:
    return group.kind in ("none", "unmeasured", "zero")


def _list(group: Group[ParameterRow], page: Page) -> Iterator[Text | Padding]:
    reasons: dict[str, list[ParameterRow]] = {}
    for row in group.rows:
        reasons.setdefault(row.reason or "", []).append(row)
    heading = f"{group.title}: {counted(group.total, 'parameter')}"
    yield Text(heading, style=STYLES.get(group.kind, ""))
    for reason, rows in reasons.items():
        if reason:
            yield Padding(page.text(reason), (0, 0, 0, 2))
        yield Padding(_positions(rows, page), (0, 0, 0, 4 if reason else 2))
    if group.folded:
        yield _more(group, page)


def _positions(rows: list[ParameterRow], page: Page) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    for row in rows:
        shape = Text(_shape(row)) if page.width >= _NARROW else Text()
        table.add_row(page.text(row.name), shape, page.position(row.site, page.width // 3))
    return table


def _more(group: Group[ParameterRow], page: Page) -> Text:
    words = (
        f"{page.signs.ellipsis} {group.folded:,} more with {group.title}: use --top to show more"
    )
    return Text(f"  {words}", style="dim")


def _table(groups: list[Group[ParameterRow]], report: Report, page: Page) -> Table:
    has_updates = any(row.update_norm is not None for row in report.parameters)
    rows = [row for group in groups for row in group.rows]
    kinds = [
        group.kind if position == 0 else ""
        for group in groups
        for position in range(len(group.rows))
    ]
    columns = {"": [Text(kind, style="dim") for kind in kinds]}
    numbers = _numbers(rows, page, has_updates=has_updates)
    room = page.width - _GAP * (len(numbers) + 1) - _width("", columns[""])
    room -= sum(_width(title, cells) for title, cells in numbers.items())
    columns["parameter"] = [_name(row, page, room) for row in rows]
    columns |= numbers
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for title in columns:
        is_text = title in ("", "parameter", "shape", "line")
        table.add_column(
            title,
            justify="left" if is_text else "right",
            no_wrap=title != "parameter",
            overflow="fold",
            min_width=16 if title == "parameter" else None,
        )
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def _numbers(rows: list[ParameterRow], page: Page, *, has_updates: bool) -> dict[str, list[Text]]:
    """Return the columns that the page is wide enough for, by their titles."""
    signs = page.signs
    columns: dict[str, list[Text]] = {}
    if page.width >= _MIDDLE:
        columns["shape"] = [Text(_shape(row), style="dim") for row in rows]
    columns["norm"] = [_norm(row, page) for row in rows]
    columns["/ weight"] = [Text(figure(row.grad_to_weight, signs)) for row in rows]
    if has_updates:
        title = "update / weight" if page.width >= _WIDE else "update"
        columns[title] = [Text(figure(row.update_to_weight, signs)) for row in rows]
    if page.width >= _WIDE and any(row.site for row in rows):
        columns["line"] = [page.position(row.site, page.width // 3) for row in rows]
    return columns


def _width(title: str, cells: list[Text]) -> int:
    return max(len(title), *map(len, cells))


def _norm(row: ParameterRow, page: Page) -> Text:
    if row.grad is None:
        return Text(page.signs.dash, style="dim")
    return Text(figure(row.grad.norm, page.signs), style="bold red" if row.grad.is_broken else "")


def _name(row: ParameterRow, page: Page, width: int) -> Text:
    text = page.path(row.name, width)
    if row.grad is not None and row.grad.is_broken:
        counts = broken_text(row.grad)
        text.append(f" ({counts})", style="bold red")
    for alias in row.aliases:
        text.append(" = ", style="dim").append_text(page.path(alias, width, "dim"))
    return text


def _shape(row: ParameterRow) -> str:
    return f"[{', '.join(map(str, row.shape))}]"
