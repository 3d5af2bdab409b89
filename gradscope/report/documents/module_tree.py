"""The tree of modules with their gradient norms, and its notable parameters and tensors."""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from gradscope.analysis.folding import (
    FoldedModule,
    cut_below,
    fitting_depth,
    fold_modules,
    gradient_state,
    joined_numbers,
    joined_paths,
    merge_containers,
    span,
    without_plain,
)
from gradscope.analysis.layers import with_levels
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow, ParameterRow, TensorRow
from gradscope.analysis.selection import (
    Group,
    GroupKind,
    modules_below,
    select_parameters,
    select_tensors,
    tensors_below,
)
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted
from gradscope.recording.norm_table import NO_GRADIENT
from gradscope.report.document import (
    Column,
    Inner,
    Line,
    Location,
    Mark,
    Note,
    Points,
    Section,
    Table,
    TreeLabel,
    Value,
    Word,
    more,
    section,
)
from gradscope.report.number_format import broken_text, figure, made_by, shape_text, short_count
from gradscope.report.page import UNICODE
from gradscope.report.strips import sparkline

_ROWS = 26
"""Number of rows into which the tree must fit, unless the reader sets its depth."""

_TREND = 14
"""Number of characters for the norms of repeated modules."""

_NOTE = "gradient norm over a module's parameters, log scale"

_GAIN = "gain: gradient norm at a module's input over that at its output"


def module_sections(report: Report, view: ViewOptions) -> Iterator[Section]:
    """Yield the tree, and the number of omitted modules."""
    rows = modules_below(report, view)
    trees = [tree for root in fold_modules(rows, gradient_state) if (tree := without_plain(root))]
    depth = _depth(rows, trees, view)
    shown = [merge_containers(cut_below(tree, depth)) for tree in trees]
    lines = [line for tree in shown for line in with_levels(tree, 0)]
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
        text = f"… {counted(hidden, 'row')} of deeper modules folded: use --depth N to show them"
        blocks.append(Points((Word(text, "soft"),)))
    yield from section("Modules", blocks, note=_NOTE)


def _depth(rows: tuple[ModuleRow, ...], trees: list[FoldedModule], view: ViewOptions) -> int:
    if view.depth is not None and rows:
        return min(row.depth for row in rows) + view.depth
    return fitting_depth(trees, _ROWS)


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
    # The span of the norms tells as much of two, and a missing norm would shift the others.
    if len(known) < 3 or len(known) < len(norms):
        return ""
    last = len(known) - 1
    count = min(len(known), _TREND)
    chosen = [known[i * last // (count - 1)] for i in range(count)]
    return sparkline(chosen, UNICODE, least=1.0)


_LISTED: dict[GroupKind, Mark] = {"none": "notable", "unmeasured": "soft", "zero": "notable"}
"""Groups without numbers, which are listed with the reason."""


def parameter_sections(report: Report, view: ViewOptions) -> tuple[Section, ...]:
    """Return the groups without numbers by their reasons, the others as a table."""
    groups = select_parameters(report, view)
    measured = [group for group in groups if group.kind not in _LISTED]
    blocks: list[Inner] = [
        block for group in groups if group.kind in _LISTED for block in _listed(group, report)
    ]
    if measured:
        blocks.append(Note(Word("/ weight: gradient norm over weight norm", "soft")))
        blocks.append(_parameters(measured, report))
        blocks += [block for group in measured for block in _rest(group)]
    note = "" if report.training_run is None else "as last measured"
    return section("Notable parameters", blocks, note=note)


def _listed(group: Group[ParameterRow], report: Report) -> Iterator[Inner]:
    reasons: dict[str, list[ParameterRow]] = {}
    for row in group.rows:
        # The title says it already.
        reason = "" if row.reason == NO_GRADIENT else row.reason or ""
        reasons.setdefault(reason, []).append(row)
    head = Word(f"{group.title}: {counted(group.total, 'parameter')}", _LISTED[group.kind])
    for turn, (reason, rows) in enumerate(reasons.items()):
        if turn == 0 or reason:
            text = f"{', ' if turn == 0 else ''}{reason}" if reason else ""
            yield Note((head, text) if turn == 0 else text)
        yield Table(
            columns=(
                Column(title="parameter", kind="name"),
                Column(title="shape", rank=1),
                Column(title="line"),
            ),
            rows=tuple(
                (Word(row.name, "name"), Word(shape_text(row), "code"), _location(row, report))
                for row in rows
            ),
            is_plain=True,
        )
    yield from _rest(group)


def _rest(group: Group[ParameterRow] | Group[TensorRow]) -> Iterator[Points]:
    text = f"more with {group.title}: use --top to show more"
    if lines := more(group.folded, text):
        yield Points(lines)


def _parameters(groups: Sequence[Group[ParameterRow]], report: Report) -> Table:
    return Table(
        columns=(
            Column(),
            Column(title="parameter", kind="name"),
            Column(title="shape", rank=1),
            Column(title="norm", kind="number"),
            Column(title="/ weight", kind="number"),
            Column(title="update / weight", kind="number"),
            Column(title="line", rank=2),
        ),
        rows=tuple(
            (
                Word(group.kind if turn == 0 else "", "soft"),
                _name(row),
                Word(shape_text(row), "code"),
                None if row.grad is None else row.grad.norm,
                row.grad_to_weight,
                row.update_to_weight,
                _location(row, report) if row.site else "",
            )
            for group in groups
            for turn, row in enumerate(group.rows)
        ),
    )


def _name(row: ParameterRow) -> Line:
    parts: list[str | Word] = [Word(row.name, "name")]
    if row.grad is not None and row.grad.is_broken:
        parts.append(Word(f" ({broken_text(row.grad)})", "bad"))
    for alias in row.aliases:
        parts += [Word(" = ", "soft"), Word(alias, "name")]
    return tuple(parts)


def _location(row: ParameterRow | TensorRow, report: Report) -> Location:
    return Location(shown_site(row.site, report.target.root))


def tensor_sections(report: Report, view: ViewOptions) -> tuple[Section, ...]:
    """Return the notable tensors, or all of them, and the number of omitted ones."""
    if view.tensors == "all":
        rows = [_tensor("", (row,), report) for row in tensors_below(report, view)]
        return section("Tensors", [_tensors(rows)] if rows else [])
    groups = select_tensors(report, view) if view.tensors == "top" else ()
    rows = [
        _tensor(group.kind if turn == 0 else "", alike, report)
        for group in groups
        for turn, alike in enumerate(_alike(group))
    ]
    note = "; ".join(f"{group.kind}: {group.note}" for group in groups if group.note)
    blocks: list[Inner] = [_tensors(rows), *(block for group in groups for block in _rest(group))]
    return section("Notable tensors", blocks if rows else [], note=note)


def _tensors(rows: Sequence[tuple[Value, ...]]) -> Table:
    return Table(
        columns=(
            Column(),
            Column(title="norm", kind="number"),
            Column(title="tensor and where it was made", kind="name"),
            Column(title="line", rank=1, is_below=True),
        ),
        rows=tuple(rows),
    )


def _alike(group: Group[TensorRow]) -> list[tuple[TensorRow, ...]]:
    """Join the group's rows that one line made in modules of one kind."""
    alike: dict[Hashable, list[TensorRow]] = {}
    times: Counter[Hashable] = Counter()
    for row in group.rows:
        key = (row.operation, row.slot, row.site, row.shape, _kind(row.module), row.reason)
        # Tensors of the same call are never merged into one row.
        turn = times[key, row.module, row.call]
        times[key, row.module, row.call] += 1
        alike.setdefault((key, turn), []).append(row)
    return [tuple(rows) for rows in alike.values()]


def _kind(module: str | None) -> tuple[str, ...]:
    """Return the path's names, with one sign for all numbers."""
    names = () if module is None else module.split(".")
    return tuple("0" if name.isdecimal() else name for name in names)


def _tensor(title: str, rows: tuple[TensorRow, ...], report: Report) -> tuple[Value, ...]:
    """Return tensors of one operation in one line, in modules that repeat each other."""
    row = rows[0]
    norm = span(None if one.grad is None else one.grad.norm for one in rows)
    is_zero = row.grad is not None and row.grad.norm == 0.0
    source = "" if row.site is None else row.site.source
    return (
        Word(title, "soft"),
        Word(figure(0.0), "notable") if is_zero else norm,
        _what(rows),
        Location(shown_site(row.site, report.target.root), source),
    )


def _what(rows: tuple[TensorRow, ...]) -> Line:
    row = rows[0]
    parts: list[str | Word] = [Word(made_by(row))]
    modules = [one.module for one in rows if one.module is not None]
    if modules:
        path = joined_paths(modules)
        parts += [" in ", Word(path, "name") if path else "the model"]
    if calls := _calls(rows):
        parts.append(f" ({calls})")
    if row.shape is not None:
        parts += [" ", Word(shape_text(row), "code")]
    if row.grad is not None and row.grad.is_broken:
        parts.append(Word(f" {broken_text(row.grad)}", "bad"))
    if row.grad is None and row.reason:
        parts.append(Word(f" {row.reason}", "notable"))
    return tuple(parts)


def _calls(rows: tuple[TensorRow, ...]) -> str:
    """Return the calls of their module; nothing if it is only the first."""
    calls = {row.call for row in rows if row.call is not None}
    if len(calls) > 1:
        return f"calls {joined_numbers(calls)}"
    return f"call {call}" if (call := max(calls, default=0)) else ""
