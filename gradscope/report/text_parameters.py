"""The parameters worth looking at, in the text report."""

from collections.abc import Iterator

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.report.figures import counted, figure
from gradscope.report.model import Report
from gradscope.report.page import Page
from gradscope.report.render import ViewOptions
from gradscope.report.rows import ParameterRow
from gradscope.report.selection import Group, GroupKind, select_parameters

_WIDE = 120
_MIDDLE = 92
_NARROW = 72

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
    yield Text("Parameters worth looking at", style="bold")
    for group in groups:
        if _is_list(group):
            yield from _list(group, page)
    measured = [group for group in groups if not _is_list(group)]
    if measured:
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
        yield Padding(_places(rows, page), (0, 0, 0, 4 if reason else 2))
    if group.folded:
        yield _more(group, page)


def _places(rows: list[ParameterRow], page: Page) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    for row in rows:
        shape = Text(_shape(row)) if page.width >= _NARROW else Text()
        table.add_row(page.text(row.name), shape, page.place(row.site, page.width // 3))
    return table


def _more(group: Group[ParameterRow], page: Page) -> Text:
    words = f"{page.signs.ellipsis} {group.folded:,} more with {group.title}: --top shows more"
    return Text(f"  {words}", style="dim")


def _table(groups: list[Group[ParameterRow]], report: Report, page: Page) -> Table:
    has_updates = any(row.update_norm is not None for row in report.parameters)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("parameter", overflow="fold", min_width=16)
    if page.width >= _MIDDLE:
        table.add_column("shape", no_wrap=True, style="dim")
    table.add_column("norm", justify="right", no_wrap=True)
    table.add_column("/ weight", justify="right", no_wrap=True)
    if has_updates:
        table.add_column("update / weight" if page.width >= _WIDE else "update", justify="right")
    if page.width >= _WIDE:
        table.add_column("line", no_wrap=True)
    for group in groups:
        for place, row in enumerate(group.rows):
            kind = group.kind if place == 0 else ""
            table.add_row(*_cells(row, kind, page, has_updates=has_updates))
    return table


def _cells(
    row: ParameterRow, kind: GroupKind | str, page: Page, *, has_updates: bool
) -> Iterator[Text]:
    signs = page.signs
    style = "bold red" if row.grad is not None and row.grad.nonfinite else ""
    yield Text(kind, style=style or "dim")
    yield _name(row, page)
    if page.width >= _MIDDLE:
        yield Text(_shape(row))
    yield Text(figure(None if row.grad is None else row.grad.norm, signs), style=style)
    yield Text(figure(row.grad_to_weight, signs))
    if has_updates:
        yield Text(figure(row.update_to_weight, signs))
    if page.width >= _WIDE:
        yield page.place(row.site, page.width // 3)


def _name(row: ParameterRow, page: Page) -> Text:
    text = page.text(row.name)
    if row.grad is not None and row.grad.nonfinite:
        counts = f"{row.grad.nonfinite:,} of {row.grad.numel:,} non-finite"
        text.append(f" ({counts})", style="bold red")
    if row.aliases:
        text.append(" = " + ", ".join(page.spell(name) for name in row.aliases), style="dim")
    return text


def _shape(row: ParameterRow) -> str:
    return f"[{', '.join(map(str, row.shape))}]"
