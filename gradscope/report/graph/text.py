"""A graph as an indented tree of modules and their operations."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradscope.analysis.folding import (
    FoldedModule,
    cut_below,
    fitting_depth,
    fold_modules,
    merge_containers,
    span,
)
from gradscope.analysis.recording_index import StepView, created, first_step
from gradscope.analysis.report import Report
from gradscope.analysis.rows import GraphSummary, ModuleRow, ParameterRow
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.records import NodeRecord
from gradscope.report.graph.loops import Turn, module_surroundings, unrolled
from gradscope.report.graph.part import GraphOptions
from gradscope.report.graph.tensor_links import cut_call, cut_location, cuts_of, module_of
from gradscope.report.number_format import operation_text, span_figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.strips import Scale, sparkline, strip

_MOST_COLUMNS, _BESIDE = 40, 56
"""Maximum number of characters of a strip, and of the line around it."""
_ROWS = 200
_NARROW = 72
_NEVER_CALLED = ("ParameterList", "ParameterDict")
"""Modules whose parameters are used without a call."""

Counts = tuple[tuple[str, int], ...]
"""Operations with their counts, in the order of the forward."""

Operations = tuple[tuple[int, Counts], ...]
"""Consecutive operations, each part with how often an unrolled loop repeats it: mostly once."""


def render_graph_text(report: Report, options: GraphOptions, console: Console) -> None:
    """Print the tree in the order of the forward, then the graph's statistics."""
    page = Page.of(console, report.target.root)
    rows = _in_order(modules_below(report, ViewOptions(module=options.module)))
    view = first_step(report.recording)
    nodes = sorted(view.nodes, key=created)
    turns = unrolled(nodes, module_surroundings(report, view))
    tree = _Tree(report, page, _operations(view, nodes, turns))
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
    console.print(Trimmed(_statistics(report, page, turns)), end="")


def _in_order(rows: Sequence[ModuleRow]) -> list[ModuleRow]:
    """Return the modules in the order of their first calls; uncalled modules come last."""
    first: dict[int, float] = {}
    # The deepest first: the first call of a module may be one of a module in it.
    for row in sorted(rows, key=lambda row: -row.depth):
        call = min((call.index for call in row.calls), default=float("inf"))
        first[row.index] = min(first.get(row.index, call), call)
        if row.parent is not None:
            first[row.parent] = min(first.get(row.parent, call), first[row.index])
    return sorted(rows, key=lambda row: (first[row.index], row.index))


class _Tree:
    """The table of modules."""

    def __init__(
        self, report: Report, page: Page, operations: Mapping[int | None, Operations]
    ) -> None:
        self._page = page
        self._operations = operations
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
        operations = self._operations.get(row.index, ())
        calls = len(row.calls)
        if calls > 1 and len(operations) == 1 and operations[0][0] == calls:
            # Each call does the same.
            text = Text(f"{calls} calls", style="bold")
            text.append_text(Text(f" of {self._counted(operations[0][1])}", style="not bold"))
        else:
            text = self._operation_text(operations)
            if calls > 1:
                before = Text(f"{calls} calls", style="bold")
                text = before.append(": ").append_text(text) if text else before
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
        return Text(", ".join(self._repeated(turns, counts) for turns, counts in operations))

    def _repeated(self, turns: int, counts: Counts) -> str:
        if turns == 1 or len(counts) == 1:
            return self._counted([(name, count * turns) for name, count in counts])
        return f"{turns} turns of ({self._counted(counts)})"

    def _counted(self, counts: Iterable[tuple[str, int]]) -> str:
        times = self._page.signs.times
        return ", ".join(name if count == 1 else f"{name} {times}{count}" for name, count in counts)


def _add_word(text: Text, word: str, style: str) -> None:
    text.append("; " if text else "").append(word, style=style)


def _operations(
    view: StepView, nodes: Sequence[NodeRecord], turns: Mapping[int, Turn]
) -> dict[int | None, Operations]:
    """Return the operations of each module itself, without views and leaves.

    Args:
        view: The step.
        nodes: In the order of the forward.
        turns: The turn of each repeated operation, by node.
    """
    parts: dict[int | None, list[_Part]] = {}
    for node in nodes:
        if node.kind == "operation":
            turn = turns.get(node.index)
            loop = None if turn is None else turn.loop
            found = parts.setdefault(module_of(view, node), [])
            if not found or found[-1].loop != loop:
                found.append(_Part(loop))
            found[-1].add(node, turn)
    return {
        module: tuple((len(part.turns) or 1, tuple(part.counts.items())) for part in found)
        for module, found in parts.items()
    }


@dataclass(slots=True)
class _Part:
    """Consecutive operations of a module: of one loop, or outside of loops."""

    loop: int | None
    counts: Counter[str] = field(default_factory=Counter)
    """Operations of one turn."""
    turns: set[int] = field(default_factory=set)

    def add(self, node: NodeRecord, turn: Turn | None) -> None:
        """Add the next node."""
        if turn is not None:
            self.turns.add(turn.number)
        if turn is None or turn.node == node.index:
            self.counts[operation_text(node.operation)] += 1


def _statistics(report: Report, page: Page, turns: Mapping[int, Turn]) -> Table:
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
    for line in _over_turns(view, turns, page):
        grid.add_row("loop", Text(line))
    for cut in cuts_of(view):
        grid.add_row("cut", page.text(_cut(view, cut)))
    return grid


def _over_turns(view: StepView, turns: Mapping[int, Turn], page: Page) -> Iterator[str]:
    """Yield the largest gradient in each turn of a loop; of loops that are alike, of one."""
    norms: dict[int, dict[int, float]] = {}
    for ref, stat in view.tensor_stats.items():
        turn = turns.get(ref.node)
        if turn is not None and stat.gradient is not None:
            found = norms.setdefault(turn.loop, {})
            found[turn.number] = max(found.get(turn.number, 0.0), stat.gradient.norm)
    # Of loops with equally many turns, the first one is last here, and stays.
    longest = {len(found): found for _, found in sorted(norms.items(), reverse=True)}
    for count, found in longest.items():
        numbers = sorted(found)
        columns = min(count, _columns(page))
        cells = tuple(found[numbers[at * count // columns]] for at in range(columns))
        line = strip(cells, Scale.decades([cells]), page.signs)
        norms_text = span_figure(span(found.values()))
        yield f"gradient by turn, {norms_text}: {numbers[0]} {line} {numbers[-1]}"


def _columns(page: Page) -> int:
    return max(10, min(_MOST_COLUMNS, page.width - _BESIDE))


def _cut(view: StepView, cut: CutRecord) -> str:
    position = cut_location(view, cut)
    where = f" in {position}" if position else ""
    lost = counted(len(cut.parameters), "parameter")
    return f"{cut_call(cut)}{where} cuts the gradient of {lost}"


def _by_depth(graph: GraphSummary, page: Page) -> Iterator[str]:
    """Yield a sparkline of the parameters by their depth, and its ends."""
    last = graph.parameters_by_depth[-1][0]
    columns = min(last + 1, _columns(page))
    counts = [0] * columns
    for depth, count in graph.parameters_by_depth:
        counts[depth * columns // (last + 1)] += count
    line = sparkline(counts, page.signs)
    reached = sum(count for _, count in graph.parameters_by_depth)
    yield f"{reached:,} reached, by depth from the loss: 0 {line} {last:,}"
