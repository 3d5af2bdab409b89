"""Clipping as JSON objects; their keys are an interface, kept by the schema."""

from collections.abc import Sequence

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.contributions import Contribution
from gradscope.analysis.clipping.limits import SHARES, Advice, Distribution
from gradscope.analysis.clipping.sections import MethodRow, Section
from gradscope.analysis.report import Report
from gradscope.report.json_objects import Object, location_object


def clipping_object(report: Report) -> Object | None:
    """Return what clipping does, or would do; None where the recording tells nothing of it."""
    clipping = Clipping.of(report.recording)
    if clipping is None:
        return None
    trial = clipping.trial
    return {
        "trial": None
        if trial is None
        else {
            "max_norm": trial.max_norm,
            "norm_type": trial.norm_type,
            "clip_value": trial.value,
            "agc": trial.adaptive_ratio,
            "asked": list(trial.asked),
            "applied": trial.applied,
            "steps": trial.steps,
            "batches": trial.batches,
        },
        "series": [_section(section, report) for section in clipping.sections],
    }


def _section(section: Section, report: Report) -> Object:
    return {
        "call": section.words,
        "location": location_object(section.site, report),
        "method": section.method,
        "limit": section.limit,
        "limits": None if section.limits is None else list(section.limits),
        "is_advised": section.is_advised,
        "norm_type": section.norm_type,
        "optimizer": {
            "title": section.optimizer.title,
            "family": section.optimizer.family,
            "learning_rate": section.optimizer.rate,
            "effective_learning_rate": _effective(section),
        },
        "measured": len(section.points),
        "nonfinite": [point.step for point in section.broken],
        "cut": len(section.cut),
        "cut_share": section.cut_share,
        "norms": _distribution(section.norms),
        "histogram": [
            {"low": one.low, "high": one.high, "count": one.count} for one in section.bins
        ],
        "coefficients": _distribution(section.coefficients),
        "cosines": _distribution(section.cosines),
        "sweep": [
            {
                "max_norm": row.limit,
                "share": row.share,
                "mean_coefficient": row.mean,
                "mean_coefficient_of_cut": row.mean_cut,
                "is_given": "given" in row.mark,
                "is_advised": "auto" in row.mark,
            }
            for row in section.sweep
        ],
        "advice": _advice(section.advice),
        "parameters": _contributions("parameter", section.contributions.parameters),
        "modules": _contributions("module", section.contributions.modules),
        "methods": [_method(row) for row in section.methods],
        "checks": [{"is_right": one.is_right, "message": one.words} for one in section.checks],
        "obstacle": section.obstacle or None,
        "points": {
            "step": [point.step for point in section.points],
            "norm": [point.norm for point in section.points],
            "coefficient": [point.coefficient for point in section.points],
            "cosine": [point.cosine for point in section.points],
        },
    }


def _effective(section: Section) -> float | None:
    """Return the learning rate that the clip amounts to; None where it does not change it."""
    rate, coefficients = section.optimizer.rate, section.coefficients
    if rate is None or coefficients is None or section.optimizer.family == "adaptive":
        return None
    return rate * coefficients.mean


def _distribution(found: Distribution | None) -> Object | None:
    if found is None:
        return None
    return {
        "count": found.count,
        "min": found.least,
        **{
            f"p{100 * share:g}": value for share, value in zip(SHARES, found.quantiles, strict=True)
        },
        "max": found.greatest,
        "mean": found.mean,
    }


def _advice(advice: Advice | None) -> Object | None:
    if advice is None:
        return None
    level = advice.level
    return {
        "max_norm": advice.limit,
        "share": advice.share,
        "median": level.median,
        "median_absolute_deviation": level.deviation,
        "norms": level.count,
        "first_norms_left_out": level.settled,
        "median_of_these": level.first if level.settled else None,
        "still_moves": level.still_moves,
        "is_sure": advice.is_sure,
    }


def _contributions(kind: str, rows: Sequence[Contribution]) -> list[Object]:
    return [
        {
            kind: row.name,
            "share": row.share,
            "largest_share": row.largest,
            "largest_in": row.leads,
            "norm_before": row.before,
            "norm_after": row.after,
        }
        for row in rows
    ]


def _method(row: MethodRow) -> Object:
    return {
        "method": row.method,
        "call": row.words,
        "limit": row.limit,
        "is_asked": row.is_asked,
        "share": row.share,
        "median_norm_after": row.after,
        "mean_coefficient": row.coefficient,
        "median_cosine": row.cosine,
        "least_cosine": row.worst,
    }
