"""What only the report on a training run has, and the ranks of a job, as blocks of a document."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from gradscope.analysis.columns import Cells, Columns, Curve, curves
from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.layers import Layer, layers
from gradscope.analysis.ranks.job_summary import JobSummary, RankRow
from gradscope.analysis.report import Report
from gradscope.analysis.run_optimizers import OptimizerRow
from gradscope.analysis.timeline import Pattern
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted, short
from gradscope.recording.evidence.training import ContinuedRun
from gradscope.report.document import (
    Block,
    Column,
    Fact,
    Facts,
    Inner,
    Line,
    Location,
    Note,
    Points,
    Section,
    Strip,
    Strips,
    Table,
    Value,
    Word,
    more,
    section,
)
from gradscope.report.documents.attention import attention_sections
from gradscope.report.documents.module_tree import label_of, parameter_sections, trend
from gradscope.report.documents.run_phrasing import (
    CURVE_NAMES,
    captured_steps_text,
    cost_text,
    course_text,
    curves_note,
    dropped_text,
    extreme_text,
    file_word,
    heading,
    kept_batches_text,
    kept_text,
    layer_ends,
    layer_name,
    length_text,
    of_each_optimizer,
    optimizer_text,
    pattern_text,
    run_text,
)
from gradscope.report.finding_phrasing import found_text
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE
from gradscope.report.strips import BROKEN, ZERO, Scale, StripLayout, module_layout, scale_of

# A script may make an optimizer for each layer, or for each of thousands of tasks.
_OPTIMIZERS_SHOWN = 4

_PATTERNS_SHOWN = 5

_LAYERS_SHOWN = 40


def run_header(report: Report, run: TrainingRun, *further: Fact) -> Iterator[Inner]:
    """Yield the header of a run: models, optimizers, steps, time, and ending.

    Args:
        report: Of the run.
        run: The run itself.
        further: Facts to add.
    """
    speed = run.step_count > 1 and run.seconds > 0
    parts = [
        length_text(run),
        f"{short(run.step_count / run.seconds)} steps/s" if speed else "",
        report.environment.device,
        f"torch {report.environment.torch}",
    ]
    reported = (
        ("model", _models(report)),
        *(("optimizer", line) for line in _optimizers(report, run)),
        ("ranks", "" if report.job is None else report.job.title),
        ("run", " · ".join(word for word in parts if word)),
        ("resumed", _resumptions(report)),
        ("watched", "" if run.cost is None else cost_text(run.cost)),
        ("kept", kept_text(run)),
        ("dropped", dropped_text(run)),
        ("tensors", captured_steps_text(run, file_word(report.recording))),
        ("batches", kept_batches_text(report.recording.kept_batches, file_word(report.recording))),
    )
    yield Facts((*(Fact(name, line) for name, line in reported if line), *further))
    if run.ending is not None:
        title = run.ending.title
        mark: Word = Word(title, "bad" if run.ending.is_trouble else "strong")
        yield Note((mark, run.ending.line.removeprefix(title)))


def _resumptions(report: Report) -> str:
    steps = [f"{one.step:,}" for one in report.recording.evidence_of(ContinuedRun)]
    return f"from a checkpoint at step {', '.join(steps)}" if steps else ""


def _models(report: Report) -> str:
    # Losses and metrics are often modules too, but have no parameters.
    roots = [row for row in report.modules if row.parent is None and row.parameters]
    titles = Counter(
        f"{row.path} {row.class_name}" if row.path not in ("", row.class_name) else row.class_name
        for row in roots
        if row.class_name
    )
    names = [
        f"{title} {UNICODE.times}{count}" if count > 1 else title
        for title, count in list(titles.items())[:_OPTIMIZERS_SHOWN]
    ]
    if (hidden := len(titles) - _OPTIMIZERS_SHOWN) > 0:
        names.append(f"{hidden:,} more")
    summary = report.summary
    size = f"{summary.numel:,} elements in {counted(summary.parameters, 'parameter')}"
    frozen = f", {summary.frozen:,} frozen" if summary.frozen else ""
    sizes = f"{size}{frozen}" if summary.parameters else ""
    return ": ".join(filter(None, (", ".join(names), sizes)))


def _optimizers(report: Report, run: TrainingRun) -> Iterator[Line]:
    for row in run.optimizers[:_OPTIMIZERS_SHOWN]:
        position = shown_site(row.site, report.target.root)
        at = Word(f", {position}" if position else "", "soft")
        yield optimizer_text(row, run), at, _share_of(row, run)
    if (hidden := len(run.optimizers) - _OPTIMIZERS_SHOWN) > 0:
        steps = sum(row.steps for row in run.optimizers[_OPTIMIZERS_SHOWN:])
        yield Word(f"{hidden:,} more with {counted(steps, 'step')} together", "soft")


def _share_of(row: OptimizerRow, run: TrainingRun) -> str:
    """Return the steps of an optimizer and their data, if there are other optimizers."""
    made = f", made {row.made:,} times" if row.made > 1 else ""
    if len(run.optimizers) == 1 and row.steps:
        return made
    held = "" if row.parameters is None else f" on {counted(row.parameters, 'parameter')}"
    return f"{made}: {counted(row.steps, 'step') if row.steps else 'no step'}{held}"


def run_sections(
    report: Report, run: TrainingRun, view: ViewOptions, width: int
) -> Iterator[Block]:
    """Yield what steps are made of, the curves, the layers, and the notable parameters."""
    note = "events before each step, and their frequency"
    yield from section("Steps", list(_steps(report, run)), note=note)
    if run.steps:
        layout = module_layout(width, report.modules)
        columns = Columns.over(run, layout.strip)
        yield from _curves(run, columns, layout)
        yield from _layers(report, view, columns, layout)
    yield from attention_sections(report)
    yield from parameter_sections(report, view)


def _steps(report: Report, run: TrainingRun) -> Iterator[Inner]:
    drawn = of_each_optimizer(run)
    # The window without a step tells what the run did last.
    shown = [item for turn, item in enumerate(drawn) if turn < _OPTIMIZERS_SHOWN or item[0] is None]
    for position, of_one in shown:
        if len(drawn) > 1 or position is None:
            yield Note(heading(run, position))
        yield Table(
            columns=(
                Column(title="count", kind="number"),
                Column(title="events"),
                Column(title="line", rank=1),
            ),
            rows=tuple(_pattern(pattern, report) for pattern in of_one[:_PATTERNS_SHOWN]),
            is_plain=True,
        )
        if (hidden := len(of_one) - _PATTERNS_SHOWN) > 0:
            count = sum(pattern.count for pattern in of_one[_PATTERNS_SHOWN:])
            text = f"… {counted(count, 'step')} in {hidden:,} more ways: --output-format json"
            yield Points((Word(text, "soft"),))
    if (hidden := len(drawn) - len(shown)) > 0:
        yield Points((Word(f"… of {hidden:,} more optimizers", "soft"),))


def _pattern(pattern: Pattern, report: Report) -> tuple[Value, ...]:
    count, text = f"{pattern.count:,} {UNICODE.times}", pattern_text(pattern)
    position = shown_site(pattern.site, report.target.root)
    if pattern.is_typical:
        return count, text, Location(position) if position else ""
    at = f" at {position}" if position else ""
    return count, (Word(text, "notable"), Word(f"  first step {pattern.first:,}{at}", "soft")), ""


def _curves(run: TrainingRun, columns: Columns, layout: StripLayout) -> Iterator[Section]:
    drawn = curves(run, columns, _OPTIMIZERS_SHOWN)
    blocks: list[Inner] = []
    if drawn and (note := curves_note(run)):
        blocks.append(Note(note))
    for position in dict.fromkeys(curve.optimizer for curve in drawn):
        if len(run.optimizers) > 1:
            blocks.append(Note(optimizer_text(run.optimizers[position], run)))
        strips = [_curve(curve) for curve in drawn if curve.optimizer == position]
        blocks.append(_strips(strips, columns, layout))
    share = f", up to {columns.widest:,} in a column" if columns.widest > 1 else ""
    text = f"{counted(run.step_count, 'step')} from left to right{share}"
    yield from section("Curves", blocks, note=text)


def _curve(curve: Curve) -> Strip:
    return Strip(
        label=f"  {CURVE_NAMES[curve.kind]}",
        cells=curve.course.cells,
        scale=scale_of(curve),
        course=course_text(curve.course),
        extreme=extreme_text(curve),
    )


def _strips(strips: Iterable[Strip], columns: Columns, layout: StripLayout) -> Strips:
    return Strips(
        strips=tuple(strips), first=columns.steps[0], last=columns.steps[-1], layout=layout
    )


def _layers(
    report: Report, view: ViewOptions, columns: Columns, layout: StripLayout
) -> Iterator[Section]:
    found = layers(report, view, columns)
    rows = found[:_LAYERS_SHOWN]
    if not any(cell is not None for row in rows for cell in row.cells):
        return
    scale = Scale.decades(row.cells for row in rows)
    levels = UNICODE.levels
    ends = f"{levels[0]} {figure(scale.low)} to {levels[-1]} {figure(scale.high)}"
    # A strip without a number says itself why it is blank.
    legend = _legend(row.cells for row in rows if any(cell is not None for cell in row.cells))
    hidden = len(found) - len(rows)
    text = f"more {'row' if hidden == 1 else 'rows'}: --module NAME shows those of a module"
    blocks: list[Inner] = [
        *([Note(Word(legend, "soft"))] if legend else []),
        _strips((_layer(row, scale) for row in rows), columns, layout),
        *([Points(more(hidden, text))] if hidden else []),
    ]
    yield from section("Layers", blocks, note=f"gradient norms, logarithmic from {ends}")


def _layer(row: Layer, scale: Scale) -> Strip:
    is_named = row.module.name or row.module.rows[0].class_name
    course = trend(row.module)
    return Strip(
        label=label_of(row.module, row.level) if is_named else Word(layer_name(row), "soft"),
        cells=row.cells,
        scale=scale,
        course=layer_ends(row),
        extreme=f"its modules {course}" if course else "",
    )


def _legend(strips: Iterable[Cells]) -> str:
    """Return the legend of the special characters that occur."""
    known = [cell for cells in strips for cell in cells]
    parts = []
    if any(cell is not None and not math.isfinite(cell) for cell in known):
        parts.append(f"{BROKEN} NaN or infinite")
    if any(cell == 0.0 for cell in known):
        parts.append(f"{ZERO} exactly zero")
    if any(cell is None for cell in known):
        parts.append("blank: none measured")
    return ", ".join(parts)


def run_closing(report: Report, run: TrainingRun, view: ViewOptions) -> Note:
    """Return findings, steps, and the change of the loss."""
    found = found_text(report)
    parts = [*([found] if found else []), *run_text(run)]
    hint = "Use --save FILE to keep the recording." if view.can_save else ""
    return Note(f"{', '.join(parts)}.", hint=hint)


_COLUMNS = (
    Column(title="rank", kind="number"),
    Column(title="steps", kind="number"),
    Column(title="backward passes", kind="number", rank=1),
    Column(title="last loss", kind="number"),
    Column(title="ended"),
)

_SHOWN = 16
"""Number of ranks up to which each has a row; otherwise only those that differ from the first."""


def rank_sections(report: Report) -> Iterator[Block]:
    """Yield a row for every recorded rank of a job, and the facts on all ranks."""
    job = report.job
    if job is None or job.world_size == 1:
        return
    reported = tuple(remarks(job, report.target.root))
    blocks: list[Inner] = []
    if job.is_joined:
        shown = job.rows if len(job.rows) <= _SHOWN else telling_rows(job, report)[:_SHOWN]
        rows = tuple(_row(row, report.target.root) for row in shown)
        blocks.append(Table(columns=_COLUMNS, rows=rows))
        if (hidden := len(job.rows) - len(rows)) > 0:
            blocks.append(Points((Word(f"… {counted(hidden, 'more rank')}", "soft"),)))
    if reported:
        blocks.append(Points(reported))
    yield from section("Ranks", blocks)


def telling_rows(job: JobSummary, report: Report) -> list[RankRow]:
    """Return the first rank, and those that ended in another way or have findings of their own."""
    first = job.rows[0]
    return [
        row
        for row in job.rows
        if row is first
        or (row.state, row.steps, row.passes) != (first.state, first.steps, first.passes)
        or own_findings(row.rank, report)
    ]


def own_findings(rank: int, report: Report) -> list[str]:
    """Return the codes of findings that this rank shows, and not every rank."""
    count = 0 if report.job is None else len(report.job.rows)
    return [one.rule for one in report.findings if rank in one.ranks and len(one.ranks) < count]


def _row(row: RankRow, root: str) -> tuple[Value, ...]:
    at = f" at {shown_site(row.site, root)}" if row.site is not None else ""
    ended = Word(row.what) if row.state == "finished" else Word(f"{row.what}{at}", "bad")
    return f"{row.rank}", f"{row.steps:,}", f"{row.passes:,}", row.loss, ended


def part_text(job: JobSummary) -> str:
    """Return that norms of sharded parameters are those of a rank's part."""
    first = f"rank {job.rows[0].rank}"
    return (
        f"{counted(job.sharded, 'parameter')} sharded: norms of them are those of the part that "
        f"{first} holds."
    )


def remarks(job: JobSummary, root: str) -> Iterator[str]:
    """Yield sentences about the job: missing ranks, the first failure, and the norms' scope."""
    if job.is_joined:
        yield from _of_several(job, root)
    if job.norms:
        first, last = job.norms[0], job.norms[-1]
        text = f"Global gradient norm over all ranks: {figure(first.norm)} at step {first.step:,}"
        if last is not first:
            text += f", {figure(last.norm)} at step {last.step:,}"
        yield f"{text}."
    if job.is_joinable:
        yield "Norms of parameters below are those of whole parameters, joined from all ranks."
    elif job.sharded:
        yield part_text(job)
    if job.is_joined:
        yield f"Loss, events and tensors below are those of rank {job.rows[0].rank}."


def _of_several(job: JobSummary, root: str) -> Iterator[str]:
    if job.missing:
        yield f"No recording of rank {joined_numbers(job.missing)} was given."
    if len(job.versions) > 1:
        yield f"Ranks were recorded by different versions of gradscope: {', '.join(job.versions)}."
    if job.outlines:
        yield (
            f"{counted(job.outlines, 'rank')} ended as others did, after the same events: only the "
            "rules about ranks judge them."
        )
    if job.failure is not None:
        at = f" at {shown_site(job.failure.site, root)}" if job.failure.site else ""
        yield f"Rank {job.failure.rank} failed first{at}: {job.failure.what}."
