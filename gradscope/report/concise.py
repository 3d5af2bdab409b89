"""What `concise` tells of each kind of report beside its findings."""

from collections.abc import Iterator

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow, TensorRow
from gradscope.analysis.selection import select_parameters, select_tensors, tensors_below
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import Change
from gradscope.phrasing import counted, literal
from gradscope.recording.records import Site
from gradscope.report.documents.accumulation import Accumulation, headline
from gradscope.report.documents.clipping_phrasing import cut_text
from gradscope.report.documents.clipping_phrasing import headline as clip_headline
from gradscope.report.documents.clipping_phrasing import remarks as clip_remarks
from gradscope.report.documents.comparison_phrasing import (
    CURVE_NAMES,
    PRESENCE,
    TITLES,
    change_text,
    counts_text,
    difference_text,
    parting_text,
    presence_texts,
    ratio_text,
    renaming_text,
    side_text,
    spread_text,
)
from gradscope.report.documents.run_phrasing import heading, of_each_optimizer, pattern_text
from gradscope.report.finding_phrasing import (
    guess_warning,
)
from gradscope.report.number_format import figure, number, percent, shape_text, tensor_text
from gradscope.report.page import UNICODE

_PATTERNS_SHOWN = 5


def inspection_lines(report: Report, view: ViewOptions) -> Iterator[str]:
    """Yield the patterns of a run; of a step, if no rule ran, a line for each notable row."""
    run = report.training_run
    if run is not None:
        if not report.rules.ran:
            for one in report.skipped:
                yield _line(report, None, f"{one.what}: {one.reason}")
        yield from _patterns(run)
        return
    if (warning := guess_warning(report.target)) is not None:
        yield _line(report, None, f"warning: {warning}")
    if view.tensors == "all":
        yield from _tensors(report, view)
    elif not (report.findings or report.rules.ran):
        parameters, tensors = _parameters(report, view), _tensors(report, view)
        # Non-finite values originate in a tensor.
        is_broken = bool(report.summary.nonfinite_tensors)
        yield from (*tensors, *parameters) if is_broken else (*parameters, *tensors)
    accumulation = Accumulation.of(report.recording)
    if accumulation is not None:
        yield _line(report, None, headline(accumulation, "x"))


def _patterns(run: TrainingRun) -> Iterator[str]:
    """Yield the steps' patterns, one per line, each with its number of steps."""
    for position, drawn in of_each_optimizer(run):
        of = heading(run, position)
        for pattern in drawn[:_PATTERNS_SHOWN]:
            first = "" if pattern.is_typical else f", first {pattern.first:,}"
            count = "" if position is None else f" ({counted(pattern.count, 'step')}{first})"
            yield f"{of}: {pattern_text(pattern)}{count}"
        if (more := len(drawn) - _PATTERNS_SHOWN) > 0:
            yield f"{of}: {counted(more, 'more pattern')}"


def _line(report: Report, site: Site | None, text: str) -> str:
    return f"{shown_site(site, report.target.root) or report.target.name}: {text}"


def _parameters(report: Report, view: ViewOptions) -> Iterator[str]:
    for group in select_parameters(report, view):
        for row in group.rows:
            yield _line(report, row.site, f"{group.title}: {row.name} {_parameter(row)}")
        if group.folded:
            yield f"{group.title}: {group.folded} more"


def _parameter(row: ParameterRow) -> str:
    parts = [f"{shape_text(row)}"]
    if row.grad is not None:
        parts.append(f"norm {number(row.grad.norm)}")
        parts.append(f"gradient/weight {number(row.grad_to_weight)}")
    if row.reason:
        parts.append(row.reason)
    return ", ".join(parts)


def _tensors(report: Report, view: ViewOptions) -> Iterator[str]:
    if view.tensors == "all":
        for row in tensors_below(report, view):
            yield _line(report, row.site, f"tensor: {_tensor(row)}")
    if view.tensors != "top":
        return
    for group in select_tensors(report, view):
        for row in group.rows:
            yield _line(report, row.site, f"{group.title}: {_tensor(row)}")
        if group.folded:
            yield f"{group.title}: {group.folded} more tensors"


def _tensor(row: TensorRow) -> str:
    norm = f"norm {number(row.grad.norm)}" if row.grad else row.reason or "not measured"
    return f"{tensor_text(row)} {shape_text(row)}, {norm}"


def clipping_lines(report: Report, clipping: Clipping) -> Iterator[str]:
    """Yield some lines for each line of code that clips."""
    for section in clipping.sections:
        yield from (_line(report, section.site, text) for text in _section(section))


def _section(section: Section) -> Iterator[str]:
    if section.method is None:
        yield f"nothing clips: {section.text}"
    else:
        advised = ", recommended," if section.is_advised else ""
        yield f"{section.text}{advised} clips {cut_text(section)}"
    for check in section.checks:
        yield f"{'ok' if check.is_right else 'not right'}: {check.text}"
    if section.norms is not None:
        norms = section.norms
        yield (
            f"norm before clipping, of {counted(norms.count, 'step')}: least {number(norms.least)},"
            f" median {number(norms.median)}, 99 % {number(norms.quantiles[-1])}, "
            f"largest {number(norms.greatest)}"
        )
    if section.advice is not None:
        clips = percent(section.advice.share)
        yield f"recommended: max_norm {literal(section.advice.limit)}, clips {clips}"
    for one in section.contributions.parameters[:3]:
        power = section.contributions.power
        shares = f"{percent(one.share)} of the {power}, max {percent(one.largest)}"
        yield f"{one.name}: {shares}"
    for row in section.methods:
        yield (
            f"{row.text}: clips {percent(row.share)}, coefficient {number(row.coefficient)}, "
            f"cosine {number(row.cosine)}, min {number(row.worst)}"
        )
    yield from (text for text in (clip_headline(section), *clip_remarks(section)) if text)


_UNTOLD: frozenset[Change] = frozenset({*PRESENCE, "equal", "none", "rounding", "shard", "within"})


def comparison_lines(comparison: Comparison, *, top: int) -> Iterator[str]:
    """Yield a line a side, a difference, a curve and a parameter."""
    for side in comparison.sides:
        yield f"{side.letter}: {side.name}: {side_text(side)}"
    for one in comparison.differences:
        yield f"differs: {one.what}: {difference_text(one)}"
    for side, renamings in zip(comparison.sides, comparison.renamings, strict=True):
        yield from (f"names: {renaming_text(renaming, side)}" for renaming in renamings)
    yield from _numbers(comparison)
    yield from presence_texts(comparison)
    yield from _compared_parameters(comparison, top=top)


def _numbers(comparison: Comparison) -> Iterator[str]:
    base = comparison.sides[0]
    for position, side in enumerate(comparison.sides[1:], 1):
        for curve in comparison.curves:
            of = f" of {curve.optimizer}" if curve.optimizer else ""
            if text := parting_text(curve, position, comparison):
                yield f"{side.letter}: {CURVE_NAMES[curve.kind]}{of} {text}"
        if not comparison.curves:
            yield (
                f"{side.letter}: loss {_moved(base.loss, side.loss)}, gradient norm "
                f"{_moved(base.grad_norm, side.grad_norm)}"
            )
        yield f"{side.letter}: {counts_text(comparison, position)}"
        if spread := spread_text(comparison, position):
            yield f"{side.letter}: {spread}"


def _moved(before: float | None, after: float | None) -> str:
    change = change_text(before, after)
    ends = f"{figure(before)} {UNICODE.arrow} {figure(after)}"
    return f"{ends} ({change})" if change else ends


def _compared_parameters(comparison: Comparison, *, top: int) -> Iterator[str]:
    rows = [one for one in comparison.parameters if one.change not in _UNTOLD]
    rows.sort(key=lambda one: one.worst)
    for one in rows[:top]:
        for side, pair in zip(comparison.sides, one.pairs, strict=True):
            if pair is not None and pair.change not in _UNTOLD:
                ratio = ratio_text(pair.ratio)
                yield f"{side.letter}: {one.name}: {TITLES[pair.change]}, ratio {ratio}"
    if (more := len(rows) - top) > 0:
        yield f"{more:,} more parameters outside the tolerance: --top {len(rows)}"
