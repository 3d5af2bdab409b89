"""A comparison as JSON, by `gradscope/schemas/compare-1.json`: one object, or one object a line."""

from collections.abc import Iterator

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.curves import ComparedCurve, Parting, SideCurve
from gradscope.comparison.findings import ComparedFinding
from gradscope.comparison.parameters import ComparedParameter, ParameterPair
from gradscope.comparison.regressions import Regression
from gradscope.comparison.side import Side, SideParameter
from gradscope.report import json_objects as objects
from gradscope.report.comparison.phrasing import norm_limit, regression_text
from gradscope.report.json_objects import Json, Object


def comparison_object(comparison: Comparison) -> Object:
    """Return the whole comparison."""
    return {
        **meta_object(comparison),
        "verdict": verdict_object(comparison),
        "sides": [side_object(comparison, position) for position in range(len(comparison.sides))],
        "curves": [curve_object(curve) for curve in comparison.curves],
        "parameters": [parameter_object(one) for one in comparison.parameters],
        "findings": [finding_object(one, comparison) for one in comparison.findings],
    }


def comparison_lines(comparison: Comparison) -> Iterator[tuple[str, Object]]:
    """Yield the same, each object after its kind."""
    yield "meta", meta_object(comparison)
    yield "verdict", verdict_object(comparison)
    for position in range(len(comparison.sides)):
        yield "side", side_object(comparison, position)
    yield from (("curve", curve_object(curve)) for curve in comparison.curves)
    yield from (("parameter", parameter_object(one)) for one in comparison.parameters)
    yield from (("finding", finding_object(one, comparison)) for one in comparison.findings)


def meta_object(comparison: Comparison) -> Object:
    """Return what was compared how."""
    tolerance = comparison.tolerance
    return {
        "schema_version": objects.SCHEMA_VERSION,
        "tool": {"name": "gradscope", "version": comparison.version},
        "command": comparison.command,
        "of_ranks": comparison.of_ranks,
        "steps": comparison.steps,
        "tolerance": {
            "norm": norm_limit(comparison),
            "loss": tolerance.loss,
            "cosine": tolerance.cosine,
            "fail_level": tolerance.fail_level,
        },
        "differences": [
            {"what": one.what, "values": [value or None for value in one.values]}
            for one in comparison.differences
        ],
        "renamings": [
            {
                "side": side.letter,
                "before": one.before,
                "after": one.after,
                "parameters": one.parameters,
            }
            for side, renamings in zip(comparison.sides, comparison.renamings, strict=True)
            for one in renamings
        ],
    }


def verdict_object(comparison: Comparison) -> Object:
    """Return what a gate makes of it, whether there is one or not."""
    verdict = comparison.verdict
    return {
        "outcome": verdict.outcome,
        "is_gate": comparison.is_check,
        "obstacles": list(verdict.skip_reasons),
        "regressions": [_regression(one, comparison) for one in verdict.regressions],
    }


def _regression(one: Regression, comparison: Comparison) -> Object:
    return {
        "kind": one.kind,
        "side": comparison.sides[one.side].letter,
        "subjects": list(one.subjects),
        "text": regression_text(one, comparison),
        "before": one.before,
        "after": one.after,
        "limit": one.limit,
    }


def _job(side: Side) -> Object:
    """Return the job of a side; nothing of a single process."""
    job = side.report.job
    if job is None:
        return {}
    recorded = [row.rank for row in job.rows]
    return {
        "ranks": {
            "world_size": job.world_size,
            "strategy": job.strategy or None,
            "recorded": recorded,
            "missing": list(job.missing),
            "is_joined": job.is_joinable,
        }
    }


def side_object(comparison: Comparison, position: int) -> Object:
    """Return a recording, and what is to be said of all of it."""
    side = comparison.sides[position]
    meta = objects.meta_object(side.report)
    found = comparison.directions[position]
    total = None if found is None else found.total
    return {
        "letter": side.letter,
        "name": side.name,
        "rank": side.rank,
        **_job(side),
        "is_run": side.is_run,
        "steps": side.steps,
        "step": side.step,
        "loss": side.loss,
        "grad_norm": side.grad_norm,
        "parameters": len(side.parameters),
        "cosine": None if total is None else total.cosine,
        "relative_difference": None if total is None else total.relative_difference,
        "kept_steps": [] if found is None else list(found.steps),
        "command": meta["command"],
        "target": meta["target"],
        "environment": meta["environment"],
        "ending": _ending(side),
        "rules": objects.rules_object(side.report),
    }


def _ending(side: Side) -> str | None:
    run = side.report.training_run
    return None if run is None or run.ending is None else run.ending.line


def curve_object(curve: ComparedCurve) -> Object:
    """Return a number over the steps of every side."""
    return {
        "curve": curve.kind,
        "optimizer": curve.optimizer or None,
        "sides": [_side_curve(one) for one in curve.sides],
        "partings": [_parting(one) for one in curve.partings],
    }


def _side_curve(one: SideCurve | None) -> Json:
    return None if one is None else {"steps": list(one.steps), "values": list(one.values)}


def _parting(one: Parting | None) -> Json:
    if one is None:
        return None
    return {
        "common_steps": one.common,
        "first_different": one.first_different,
        "first_beyond": one.first_beyond,
        "base_end": one.base_end,
        "end": one.end,
        "increase": one.increase,
    }


def parameter_object(one: ComparedParameter) -> Object:
    """Return a parameter in every side, and how it differs from the base."""
    return {
        "name": one.name,
        "sides": [_side_parameter(side) for side in one.sides],
        "pairs": [_pair(pair) for pair in one.pairs],
    }


def _side_parameter(side: SideParameter | None) -> Json:
    if side is None:
        return None
    return {
        "name": side.name,
        "shape": side.shape.dims,
        "dtype": side.shape.dtype,
        "numel": side.numel,
        "reach": side.reach,
        "reason": side.reason,
        "grad_norm": side.norm,
        "weight_norm": side.weight_norm,
        "nonfinite": side.nonfinite,
    }


def _pair(pair: ParameterPair | None) -> Json:
    if pair is None:
        return None
    return {
        "change": pair.change,
        "ratio": pair.ratio,
        "weight_ratio": pair.weight_ratio,
        "cosine": pair.cosine,
        "relative_difference": pair.relative_difference,
        "first_difference": pair.first_difference,
    }


def finding_object(one: ComparedFinding, comparison: Comparison) -> Object:
    """Return a cause, as each side that has it shows it."""
    return {
        "standings": [None, *(one.standing(position) for position in range(1, len(one.findings)))],
        "sides": [
            None if finding is None else objects.finding_object(finding, side.report)
            for finding, side in zip(one.findings, comparison.sides, strict=True)
        ],
    }
