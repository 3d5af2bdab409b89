"""A graph as an indented tree of modules and their operations."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradscope.analysis.folding import (
    FoldedModule,
    cut_below,
    fitting_depth,
    fold_modules,
    merge_containers,
)
from gradscope.analysis.recording_index import StepView, created, first_step
from gradscope.analysis.report import Report
from gradscope.analysis.rows import GraphSummary, ModuleRow, ParameterRow
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.recording.cut_record import CutRecord
from gradscope.report.graph.part import GraphOptions
from gradscope.report.graph.tensor_links import cut_call, cut_location, cuts_of, module_of
from gradscope.report.number_format import operation_text, span_figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.strips import sparkline

_BUCKETS = 40
_ROWS = 200
_NARROW = 72
_NEVER_CALLED = ("ParameterList", "ParameterDict")
"""Modules whose parameters are used without a call."""

Operations = tuple[tuple[str, int], ...]
"""Operations with their counts, in the order of the forward."""


def render_graph_text(report: Report, options: GraphOptions, console: Console) -> None:
    """Print the tree in the order of the forward, then the graph's statistics."""
    page = Page.of(console, report.target.root)
    rows = _in_order(modules_below(report, ViewOptions(module=options.module)))
    tree = _Tree(report, page)
    roots = [merge_containers(root) for root in fold_modules(rows, tree.mark)]
    base = min((row.depth for row in rows), default=0)
    depth = fitting_depth(roots, _ROWS)
    if options.depth is not None:
        depth = min(depth, base + options.depth)
    shown = [merge_containers(cut_below(root, depth)) for root in roots]
    title = Text("gradscope graph ", style="bold cyan")
    console.print(Trimmed(title.append_text(page.text(report.target.name, "bold"))), end="")
    console.print()
    console.print(Trimmed(tree.table(shown, has_rest=not options.module)), end="")
    hidden = sum(root.size() for root in roots) - sum(root.size() for root in shown)
    if hidden:
        text = f"{page.signs.ellipsis} {counted(hidden, 'row')} of deeper modules folded"
        console.print(Text(f"{text}: use --depth or --module", style="dim"))
    console.print()
    if options.module:
        console.print(Text("of the whole model:", style="dim"))
    console.print(Trimmed(_statistics(report, page)), end="")


def _in_order(rows: Sequence[ModuleRow]) -> list[ModuleRow]:
    """Return the modules in the order of their first calls; uncalled modules come last."""
    first: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: -row.depth):
        call = min((call.index for call in row.calls), default=float("inf"))
        first[row.index] = min(first.get(row.index, call), call)
        if row.parent is not None:
            first[row.parent] = min(first.get(row.parent, call), first[row.index])
    return sorted(rows, key=lambda row: (first[row.index], row.index))


class _Tree:
    """The table of modules."""

    def __init__(self, report: Report, page: Page) -> None:
        self._page = page
        self._operations = _operations(first_step(report.recording))
        self._missing: dict[str, list[ParameterRow]] = {}
        for parameter in report.parameters:
            if parameter.grad is None:
                self._missing.setdefault(parameter.module, []).append(parameter)

    def mark(self, row: ModuleRow) -> Hashable:
        """Return what modules have to agree in to be one row."""
        missing = tuple(
            (parameter.name.rpartition(".")[2], parameter.reach)
            for parameter in self._missing.get(row.path, [])
        )
        return (self._operations.get(row.index), missing, len(row.calls))

    def table(self, roots: Sequence[FoldedModule], *, has_rest: bool) -> Table:
        """Return the table; `has_rest` adds the operations outside of all modules."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("module", overflow="fold", max_width=max(self._page.width // 2, 24))
        is_wide = self._page.width >= _NARROW
        table.add_column(
            "output gradient" if is_wide else "gradient", justify="right", no_wrap=True
        )
        title = "operations in forward order" if is_wide else "operations"
        table.add_column(title, overflow="fold")
        for root in roots:
            self._add(table, root, 0)
        rest = self._operations.get(None) if has_rest else None
        if rest:
            table.add_row(Text("outside of modules", style="dim"), "", self._operation_text(rest))
        return table

    def _add(self, table: Table, module: FoldedModule, level: int) -> None:
        row = module.rows[0]
        norm = span_figure(module.output_grad_norm)
        table.add_row(self._label(module, level), Text(norm), self._inside(row))
        for child in module.children:
            self._add(table, child, level + 1)

    def _label(self, module: FoldedModule, level: int) -> Text:
        row, page = module.rows[0], self._page
        width = max(page.width // 2, 24)
        indent = min(2 * level, width // 2)
        text = page.path(module.name, width - indent, indent=indent)
        if module.copies > 1:
            text.append(f" {page.signs.times}{module.copies}", style="bold")
        if module.name and (page.width < _NARROW or module.name == row.class_name):
            return text
        style = "dim" if module.name else "bold"
        return text.append(f"{' ' if module.name else ''}{page.spell(row.class_name)}", style=style)

    def _inside(self, row: ModuleRow) -> Text:
        text = self._operation_text(self._operations.get(row.index, ()))
        if len(row.calls) > 1:
            calls = Text(f"{len(row.calls)} calls", style="bold")
            text = calls.append(": ").append_text(text) if text else calls
        if row.own_parameters and not row.calls and row.class_name not in _NEVER_CALLED:
            _add_word(text, "not called", "magenta")
        for reach, words in (("none", "no gradient"), ("frozen", "frozen")):
            names = [
                self._page.spell(parameter.name.rpartition(".")[2])
                for parameter in self._missing.get(row.path, [])
                if parameter.reach == reach
            ]
            if names:
                _add_word(text, f"{words}: {', '.join(names)}", "magenta")
        return text

    def _operation_text(self, operations: Operations) -> Text:
        times = self._page.signs.times
        parts = [name if count == 1 else f"{name} {times}{count}" for name, count in operations]
        return Text(", ".join(parts))


def _add_word(text: Text, word: str, style: str) -> None:
    text.append("; " if text else "").append(word, style=style)


def _operations(view: StepView) -> dict[int | None, Operations]:
    """Return the operations of each module itself, without views and leaves."""
    counts: dict[int | None, Counter[str]] = {}
    for node in sorted(view.nodes, key=created):
        if node.kind == "operation":
            operations = counts.setdefault(module_of(view, node), Counter())
            operations[operation_text(node.operation)] += 1
    return {module: tuple(operations.items()) for module, operations in counts.items()}


def _statistics(report: Report, page: Page) -> Table:
    graph = report.graph
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    sizes = [counted(graph.nodes, "node"), counted(graph.edges, "edge"), f"depth {graph.depth:,}"]
    leaves = f"{graph.leaves} {'leaf' if graph.leaves == 1 else 'leaves'}"
    grid.add_row("graph", Text(", ".join([*sizes, leaves, counted(graph.views, "view")])))
    if graph.widest is not None:
        widest = (
            f"{counted(graph.widest.nodes, 'node')} side by side at depth {graph.widest.depth:,}"
        )
        grid.add_row("widest", Text(widest))
    counts: Counter[str] = Counter()
    for name, count in graph.operations:
        counts[operation_text(name)] += count
    operations = ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
    grid.add_row("operations", Text(operations))
    if graph.parameters_by_depth:
        grid.add_row("parameters", Text.assemble(*_by_depth(graph, page)))
    view = first_step(report.recording)
    for cut in cuts_of(view):
        grid.add_row("cut", page.text(_cut(view, cut)))
    return grid


def _cut(view: StepView, cut: CutRecord) -> str:
    position = cut_location(view, cut)
    where = f" in {position}" if position else ""
    lost = counted(len(cut.parameters), "parameter")
    return f"{cut_call(cut)}{where} cuts the gradient of {lost}"


def _by_depth(graph: GraphSummary, page: Page) -> Iterator[str]:
    """Yield a sparkline of the parameters by their depth, and its ends."""
    last = graph.parameters_by_depth[-1][0]
    columns = min(last + 1, _BUCKETS)
    counts = [0] * columns
    for depth, count in graph.parameters_by_depth:
        counts[depth * columns // (last + 1)] += count
    line = sparkline(counts, page.signs)
    reached = sum(count for _, count in graph.parameters_by_depth)
    yield f"{reached:,} reached, by depth from the loss: 0 {line} {last:,}"
