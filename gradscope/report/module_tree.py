"""The tree of modules with their gradient norms, as a block of a document."""

import math
from collections.abc import Iterator

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
from gradscope.report.bars import sparkline
from gradscope.report.document import (
    Column,
    Inner,
    Note,
    Points,
    Section,
    Table,
    TreeLabel,
    Value,
    Word,
    section,
)
from gradscope.report.number_format import short_count
from gradscope.report.signs import UNICODE

_ROWS = 26
"""The tree is as deep as fits into so many rows, unless the reader says how deep."""
_TREND = 14
"""Signs of the norms of repeated modules."""
_NOTE = "gradient norm over a module's parameters, log scale"
_GAIN = "gain: gradient norm at a module's input over that at its output"


def module_sections(report: Report, view: ViewOptions) -> Iterator[Section]:
    """Yield the tree, and what it leaves out."""
    rows = modules_below(report, view)
    trees = [tree for root in fold_modules(rows, gradient_state) if (tree := without_plain(root))]
    depth = _depth(rows, trees, view)
    shown = [merge_containers(cut_below(tree, depth)) for tree in trees]
    lines = [line for tree in shown for line in _lines(tree, 0)]
    if not lines:
        return
    blocks: list[Inner] = [
        Note(Word(_GAIN, "soft")),
        Table(
            columns=(
                Column(title="module", kind="name"),
                Column(title="params", kind="number", rank=1),
                Column(title="norm", kind="number"),
                Column(kind="logarithmic bar"),
                Column(title="first to last", kind="trend", rank=3),
                Column(title="gain", kind="number", rank=2),
            ),
            rows=tuple(_row(module, level) for module, level in lines),
        ),
    ]
    whole = sum(merge_containers(tree).size() for tree in trees)
    if hidden := whole - sum(tree.size() for tree in shown):
        words = f"… {counted(hidden, 'row')} of deeper modules folded: use --depth N to show them"
        blocks.append(Points((Word(words, "soft"),)))
    yield from section("Modules", blocks, note=_NOTE)


def _depth(rows: tuple[ModuleRow, ...], trees: list[FoldedModule], view: ViewOptions) -> int:
    if view.depth is not None and rows:
        return min(row.depth for row in rows) + view.depth
    return fitting_depth(trees, _ROWS)


def _lines(module: FoldedModule, level: int) -> Iterator[tuple[FoldedModule, int]]:
    yield module, level
    for child in module.children:
        yield from _lines(child, level + 1)


def _row(module: FoldedModule, level: int) -> tuple[Value, ...]:
    return (
        label_of(module, level),
        short_count(module.rows[0].numel),
        _norm(module),
        module.grad_norm,
        trend(module),
        module.gain,
    )


def label_of(module: FoldedModule, level: int) -> TreeLabel:
    """Return the label of a module in a tree."""
    return TreeLabel(
        level=level,
        name=module.name,
        class_name=module.rows[0].class_name,
        copies=module.copies,
        calls=len(module.rows[0].calls),
    )


def _norm(module: FoldedModule) -> Value:
    norm, row = module.grad_norm, module.rows[0]
    if norm is None:
        if row.trainable_parameters:
            return Word("none", "bad")
        return Word("frozen", "soft") if row.parameters else None
    return Word("0", "notable") if norm.high == 0.0 else norm


def trend(module: FoldedModule) -> str:
    """Return a sparkline of the norms' logarithms over the repeated modules."""
    norms = [row.grad_norm for row in module.rows]
    known = [math.log10(norm) for norm in norms if norm and math.isfinite(norm)]
    if len(known) < 3 or len(known) < len(norms):
        return ""
    last = len(known) - 1
    count = min(len(known), _TREND)
    chosen = [known[i * last // (count - 1)] for i in range(count)]
    return sparkline(chosen, UNICODE, least=1.0)
