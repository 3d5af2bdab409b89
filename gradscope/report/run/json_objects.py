"""A training run as JSON objects; their keys are an interface, kept by the schema."""

from collections.abc import Iterator

from gradscope.analysis.captured_steps import CapturedStepRow
from gradscope.analysis.columns import Columns
from gradscope.analysis.layers import module_norms
from gradscope.analysis.report import Report
from gradscope.analysis.run_optimizers import OptimizerRow
from gradscope.analysis.timeline import Fold, Norms, Pattern
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import shown_path
from gradscope.recording.evidence.optimizers import WatchCost
from gradscope.recording.run_ending import RunEnding
from gradscope.report.json_objects import Json, Object, location_object
from gradscope.report.run.phrasing import pattern_text

_COLUMNS = 100
"""Into so many the norms of modules are summed up, where there are more steps."""


def run_objects(report: Report) -> dict[str, Json]:
    """Return what a report has only of a training run, by key; nothing of others."""
    run = report.training_run
    if run is None:
        return {}
    return {
        "timeline": [_pattern(pattern, report) for pattern in run.patterns],
        "training_run": _run(report, run),
    }


def run_lines(report: Report) -> Iterator[tuple[str, Object]]:
    """Yield the same, each object after its kind."""
    run = report.training_run
    if run is not None:
        yield from (("timeline", _pattern(pattern, report)) for pattern in run.patterns)
        yield "training_run", _run(report, run)


def _pattern(pattern: Pattern, report: Report) -> Object:
    """Return windows that are made of the same events."""
    return {
        "optimizer": pattern.optimizer,
        "picture": pattern_text(pattern),
        "moments": [_moment(fold) for fold in pattern.folds],
        "clipped": [_norms(word, norms) for word, norms in pattern.norms],
        "count": pattern.count,
        "first_step": pattern.first,
        "location": location_object(pattern.site, report),
        "is_typical": pattern.is_typical,
    }


def _moment(fold: Fold) -> Object:
    return {
        "event": fold.word or None,
        "group": [_moment(inner) for inner in fold.group],
        "least": fold.least,
        "most": fold.most,
    }


def _norms(word: str, norms: Norms) -> Object:
    return {
        "event": word,
        "median_norm": norms.median,
        "nonfinite": norms.nonfinite,
        "calls": norms.calls,
        "cut": norms.cut,
    }


def _run(report: Report, run: TrainingRun) -> Object:
    """Return what was run, its curves step by step, and the norms of its modules."""
    steps = run.steps
    return {
        "steps": len(steps),
        "seconds": run.seconds,
        "is_complete": run.is_complete,
        "ending": _ending(run.recorded_ending, report),
        "cost": None if run.cost is None else _cost(run.cost),
        "optimizers": [_optimizer(row, report) for row in run.optimizers],
        "curves": {
            "step": [step.step for step in steps],
            "optimizer": [step.optimizer for step in steps],
            "seconds": [step.seconds for step in steps],
            "loss": [step.loss for step in steps],
            "grad_norm": [step.grad_norm for step in steps],
            "norm_before_clip": [step.norm_before_clip for step in steps],
            "update_ratio": [step.update_ratio for step in steps],
            "learning_rate": [step.learning_rate for step in steps],
        },
        "layers": _layers(report, run),
        "looks": [_look(row, report) for row in run.captured_steps],
    }


def _ending(ending: RunEnding | None, report: Report) -> Json:
    if ending is None:
        return None
    position = {"file": shown_path(ending.file, report.target.root), "line": ending.line}
    return {
        "kind": ending.kind,
        "exit_code": ending.code,
        "exception": ending.exception or None,
        "message": ending.message or None,
        "location": position if ending.file else None,
    }


def _cost(cost: WatchCost) -> Object:
    return {
        "budget": cost.budget,
        "share": cost.share,
        "seconds": cost.seconds,
        "steps": cost.steps,
        "measured": cost.measured,
        "captured": cost.captured,
        "repeated": cost.repeated,
    }


def _look(row: CapturedStepRow, report: Report) -> Object:
    return {
        "step": row.step,
        "location": location_object(row.site, report),
        "of": row.subject,
        "loss": row.loss,
        "nodes": row.nodes,
        "tensors": row.tensors,
    }


def _optimizer(row: OptimizerRow, report: Report) -> Object:
    return {
        "name": row.name,
        "title": row.title,
        "location": location_object(row.site, report),
        "parameters": row.parameters,
        "steps": row.steps,
        "made": row.made,
    }


def _layers(report: Report, run: TrainingRun) -> Object:
    columns = Columns.over(run, _COLUMNS)
    return {
        "first_steps": columns.first_steps,
        "modules": [
            {"module": row.path, "norms": norms} for row, norms in module_norms(report, columns)
        ],
    }
