"""Texts of reports of a run, for all formats."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from gradscope.analysis.columns import Course, Curve
from gradscope.analysis.layers import Layer
from gradscope.analysis.run_optimizers import OptimizerRow
from gradscope.analysis.timeline import Fold, Folds, Norms, Pattern
from gradscope.analysis.training_run import CurveKind, TrainingRun, steps_text
from gradscope.phrasing import counted, printable, short
from gradscope.recording.evidence.training import WatchCost
from gradscope.recording.records import KeptBatch, Recording
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE

CURVE_NAMES: dict[CurveKind, str] = {
    "loss": "loss",
    "norm": "gradient norm",
    "raw": "before clip",
    "update": "update / weight",
    "rate": "learning rate",
}
_MOMENTS_SHOWN = 16
_MINUTE, _HOUR = 60, 3600
_COURSES_TOLD = 2
"""Number of optimizers above which the last line omits their losses."""


def duration(seconds: float) -> str:
    """Return `0.42 s`, `12.3 s`, `3 min 12 s`, `2 h 05 min`."""
    # 59.95 s would be rounded to 60 s, which is a minute.
    if seconds < _MINUTE - 0.05:
        return f"{short(seconds)} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02} min"


def length_text(run: TrainingRun) -> str:
    """Return `10,000 steps in 3 min 12 s`."""
    count = counted(run.step_count, "step") if run.steps else "no optimizer step"
    return f"{count} in {duration(run.seconds)}"


def optimizer_text(row: OptimizerRow, run: TrainingRun) -> str:
    """Return `opt_d SGD(lr=0.1)`, without the name if there is only one optimizer."""
    has_others = len(run.optimizers) > 1
    return f"{row.name} {row.title}" if row.name and has_others else row.title


def of_each_optimizer(run: TrainingRun) -> list[tuple[int | None, list[Pattern]]]:
    """Return the patterns by optimizer; None for windows without a step."""
    drawn: dict[int | None, list[Pattern]] = {}
    for pattern in run.patterns:
        drawn.setdefault(pattern.optimizer, []).append(pattern)
    return list(drawn.items())


def heading(run: TrainingRun, optimizer: int | None) -> str:
    """Return what patterns or curves of an optimizer are of."""
    if optimizer is None:
        return "after the last step" if run.steps else "without a step"
    return optimizer_text(run.optimizers[optimizer], run)


def pattern_text(pattern: Pattern) -> str:
    """Return `zero → forward → backward → clip 1.0 (norm 3.20) → step`."""
    return " → ".join(pattern_parts(pattern))


def pattern_parts(pattern: Pattern) -> list[str]:
    """Return the same in its parts, without arrows between them."""
    notes = dict(_notes(pattern))
    return _parts(pattern.folds, lambda word: f"{word}{notes.get(word, '')}")


def _notes(pattern: Pattern) -> Iterator[tuple[str, str]]:
    for word, norms in pattern.norms:
        words = [] if norms.median is None else [f"norm {figure(norms.median)}", _cut(norms)]
        if norms.nonfinite:
            broken = "non-finite"
            words.append(f"{norms.nonfinite:,} {broken}" if words else f"norm {broken}")
        yield word, f" ({', '.join(words)})"


def _cut(norms: Norms) -> str:
    """Return how often a clip met a norm above its limit."""
    if norms.calls == 1:
        return "cut" if norms.cut else "not cut"
    if not norms.cut:
        return "never cut"
    return "always cut" if norms.cut == norms.calls else f"cut {norms.cut:,} of {norms.calls:,}"


def _parts(folds: Folds, told: Callable[[str], str]) -> list[str]:
    parts = [_fold(fold, told) for fold in folds]
    if len(parts) > _MOMENTS_SHOWN:
        hidden = len(parts) - _MOMENTS_SHOWN + 1
        # The last part is the step of the optimizer.
        parts = [*parts[: _MOMENTS_SHOWN - 2], f"… {hidden:,} more", parts[-1]]
    return parts


def _fold(fold: Fold, told: Callable[[str], str]) -> str:
    inside = " → ".join(_parts(fold.group, told))
    text = f"({inside})" if fold.group else told(fold.word)
    if fold.most == 1:
        return text
    most = "" if fold.least == fold.most else f"…{fold.most:,}"
    return f"{text} {UNICODE.times}{fold.least:,}{most}"


def run_text(run: TrainingRun) -> Iterator[str]:
    """Yield `10,000 steps in 12 s`, and where loss and norm went: `loss 2.31 → 0.0420`."""
    yield length_text(run)
    stepping = [position for position, row in enumerate(run.optimizers) if row.steps]
    for position in stepping if len(stepping) <= _COURSES_TOLD else ():
        steps = [step for step in run.steps if step.optimizer == position]
        name = f"{printable(run.optimizers[position].name)} " if len(stepping) > 1 else ""
        losses = [step.loss for step in steps if step.loss is not None]
        norms = [step.grad_norm for step in steps if step.grad_norm is not None]
        if losses:
            yield f"{name}loss {_ends(losses)}"
        if norms and len(stepping) == 1:
            yield f"norm {_ends(norms)}"
    if run.ending is not None:
        yield printable(run.ending.title)


def curves_note(run: TrainingRun) -> str:
    """Return what the numbers of the curves are, if a script may print other ones."""
    parts = []
    if run.loss_text:
        parts.append(f"loss: {run.loss_text}")
    if run.has_cut:
        parts.append("gradient norm: after clipping")
    return "; ".join(parts)


def course_text(course: Course) -> str:
    """Return `2.31 → 0.0420`."""
    return _ends(course.ends)


def extreme_text(curve: Curve) -> str:
    """Return `lowest 0.0400 at step 9,870`; the largest for anything but a loss.

    Empty where it looks like one of the ends.
    """
    course = curve.course
    if course.first_nonfinite is not None:
        steps = counted(course.nonfinite, "step")
        return f"non-finite in {steps}, first {course.first_nonfinite:,}"
    is_loss = curve.kind == "loss"
    extreme = course.lowest if is_loss else course.highest
    if extreme is None:
        return ""
    told = figure(extreme.value)
    if told in [figure(end) for end in course.ends]:
        return ""
    return f"{'lowest' if is_loss else 'largest'} {told} at step {extreme.step:,}"


def layer_name(layer: Layer) -> str:
    """Return a layer's name, the class of a model without one."""
    return layer.module.name or layer.module.rows[0].class_name or "outside of models"


def layer_ends(layer: Layer) -> str:
    """Return `0.120 → 0.0034`: the first and the last number of a strip, or why it is blank."""
    known = [cell for cell in layer.cells if cell is not None]
    if known:
        return _ends(known)
    if not any(row.trainable_parameters for row in layer.module.rows):
        return "frozen"
    return "no gradient" if layer.is_measured else UNICODE.dash


def _ends(values: Sequence[float]) -> str:
    first = figure(values[0])
    return first if len(values) == 1 else f"{first} → {figure(values[-1])}"


def cost_text(cost: WatchCost) -> str:
    """Return what was measured of a run, and its cost; empty without steps."""
    if not cost.steps:
        return ""
    all_steps = counted(cost.steps, "step")
    norms = "every step" if cost.measured == cost.steps else f"{cost.measured:,} of {all_steps}"
    text = f"norms in {norms}, tensors in {cost.captured:,}"
    if cost.share is None:
        return text
    if cost.budget is None:
        return f"{text}; took {_percent(cost.share)} of the training time, without a budget"
    # The first steps are watched before their cost is known.
    if cost.share > cost.budget:
        allowed = _percent(cost.budget)
        return f"{text}; took {short(cost.seconds, 2)} s in the first steps, then at most {allowed}"
    return f"{text}; took {_percent(cost.share)} of the training time"


def _percent(share: float) -> str:
    return f"{short(100 * share)} %"


def kept_text(run: TrainingRun) -> str:
    """Return how many steps of a long run are kept whole; empty if all are."""
    if not run.missing:
        return ""
    return (
        f"{len(run.steps):,} of {counted(run.step_count, 'step')} whole, summaries of the others: "
        "numbers of steps are estimates"
    )


def file_word(recording: Recording) -> str:
    """Return the file of a recording as a word of a command; empty if there is none."""
    if not recording.file:
        return ""
    file = PurePath(recording.file)
    root = recording.target.root
    is_below = bool(root) and file.is_relative_to(root)
    return shlex.quote(str(file.relative_to(root) if is_below else file))


def kept_batches_text(batches: Sequence[KeptBatch], file: str) -> str:
    """Return which batches are stored in a file, and what for; empty without any."""
    if not batches:
        return ""
    last = batches[-1].step
    return (
        f"{steps_text(one.step for one in batches)} stored, may contain private data: gradscope "
        f"inspect TARGET --batch {file or 'RECORDING'}:step={last}"
    )


def dropped_text(run: TrainingRun) -> str:
    """Return what was dropped because the recording is bounded; empty for nothing."""
    limit = run.limit
    if limit is None:
        return ""
    parts = [
        counted(limit.captures, "captured step") if limit.captures else "",
        f"the steps around {counted(limit.events, 'event')}" if limit.events else "",
        f"{counted(limit.gradients, 'stored gradient')}" if limit.gradients else "",
        f"the norms of {counted(limit.norms, 'step')}" if limit.norms else "",
    ]
    named = ", ".join(part for part in parts if part)
    if limit.is_full:
        return f"{named}, to keep within {limit.limit / 1e6:,.4g} MB (--keep)"
    return f"{named}; --keep all keeps everything"


def captured_steps_text(run: TrainingRun, file: str) -> str:
    """Return which steps were captured, and how to show those of a file; empty without any."""
    if not run.captured_steps:
        return ""
    steps = steps_text(row.step for row in run.captured_steps)
    if not file:
        return steps
    # The end of a script leaves its last step without a backward pass.
    measured = [row for row in run.captured_steps if row.tensors] or run.captured_steps
    return f"{steps}: gradscope report {file} --step {measured[-1].step}"
