"""Whether a side is worse than the base, and in what."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from gradscope.comparison.curves import ComparedCurve
from gradscope.comparison.findings import ComparedFinding
from gradscope.comparison.parameters import (
    Change,
    ComparedParameter,
    ParameterPair,
    distance,
    rank_of,
)
from gradscope.comparison.side import Side
from gradscope.comparison.tolerance import Tolerance
from gradscope.frozen import dataclass
from gradscope.recording.finding import at_least

Outcome = Literal["passed", "failed", "unjudged"]
RegressionKind = Literal[
    "finding", "non-finite", "lost", "zero", "frozen", "turned", "norm", "weights", "loss", "ending"
]
"""Kind of a regression: those of `Change` for parameters; `weights` if ranks hold different
weights; `ending` if a run was ended by something that did not end the base."""

_OF_PARAMETERS: tuple[tuple[RegressionKind, Change], ...] = (
    ("non-finite", "non-finite"),
    ("lost", "lost"),
    ("zero", "zero"),
    ("frozen", "frozen"),
    ("norm", "norm"),
    ("turned", "turned"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A respect in which a side is worse than the base."""

    kind: RegressionKind
    side: int
    """Index of the side."""
    subjects: tuple[str, ...]
    """Names of parameters, the worst first; otherwise the rule of a finding, or the optimizer of a
    loss.
    """
    message: str
    """Message of a finding or an ending; otherwise empty."""
    before: float | None
    """Value in the base; for several parameters, that of the worst."""
    after: float | None
    limit: float | None
    """Limit that would have passed, as the option gives it; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonVerdict:
    """The result of a comparison as a check."""

    outcome: Outcome
    regressions: tuple[Regression, ...]
    """Regressions by side; a side that could only partly be judged may also have some."""
    skip_reasons: tuple[str, ...]
    """Reasons why the side cannot be judged; empty if it can."""


def judged(
    sides: Sequence[Side],
    parameters: Sequence[ComparedParameter],
    findings: Sequence[ComparedFinding],
    curves: Sequence[ComparedCurve],
    tolerance: Tolerance,
    *,
    of_ranks: bool,
) -> ComparisonVerdict:
    """Return in what each side is worse than the base.

    Ranks see parts of a batch each: their losses differ, and their weights may not.
    """
    reasons = tuple(_skip_reasons(sides, parameters))
    found: list[Regression] = []
    for position in range(1, len(sides)):
        found += _of_findings(position, findings, tolerance)
        found += _of_parameters(position, parameters, tolerance, of_ranks=of_ranks)
        if of_ranks:
            found += _of_weights(position, parameters, tolerance)
        else:
            found += _of_loss(position, sides, curves, tolerance)
        found += _of_ending(position, sides)
    outcome: Outcome = "unjudged" if reasons else "failed" if found else "passed"
    return ComparisonVerdict(outcome=outcome, regressions=tuple(found), skip_reasons=reasons)


def _skip_reasons(sides: Sequence[Side], parameters: Sequence[ComparedParameter]) -> Iterator[str]:
    for position, side in enumerate(sides):
        if not side.has_gradient:
            yield f"no parameter of {side.letter} has a gradient: {side.name}"
        elif position and not any(one.sides[0] and one.sides[position] for one in parameters):
            yield f"{sides[0].letter} and {side.letter} have no parameter in common"
        elif position and all(_is_shard(one, position) for one in parameters):
            yield f"{side.letter} holds different shards than {sides[0].letter}"


def _is_shard(one: ComparedParameter, position: int) -> bool:
    pair = one.pairs[position]
    return pair is not None and pair.change == "shard"


def _of_findings(
    position: int, findings: Sequence[ComparedFinding], tolerance: Tolerance
) -> Iterator[Regression]:
    failing = at_least(tolerance.fail_level)
    for one in findings:
        finding = one.findings[position]
        if finding is None or one.standing(position) not in ("came", "worse"):
            continue
        before = one.findings[0]
        # A rise between two levels that both fail, or both pass, changes no outcome.
        was_failing = before is not None and before.severity in failing
        if finding.severity in failing and not was_failing:
            yield Regression(
                kind="finding",
                side=position,
                subjects=(finding.rule,),
                message=f"{finding.name}: {finding.message}",
                before=None,
                after=None,
                limit=None,
            )


def _of_parameters(
    position: int,
    parameters: Sequence[ComparedParameter],
    tolerance: Tolerance,
    *,
    of_ranks: bool,
) -> Iterator[Regression]:
    changed: dict[Change, list[tuple[ComparedParameter, ParameterPair]]] = {}
    for one in parameters:
        pair = one.pairs[position]
        if pair is not None:
            changed.setdefault(pair.change, []).append((one, pair))
    limits = {"turned": tolerance.cosine, "norm": tolerance.norm_limit(of_ranks=of_ranks)}
    for kind, change in _OF_PARAMETERS:
        found = sorted(changed.get(change, []), key=lambda item: rank_of(item[1]))
        if not found:
            continue
        worst, pair = found[0]
        base, other = worst.sides[0], worst.sides[position]
        is_turned = kind == "turned"
        yield Regression(
            kind=kind,
            side=position,
            subjects=tuple(one.name for one, _ in found),
            message="",
            before=None if is_turned or base is None else base.norm,
            after=pair.cosine if is_turned else None if other is None else other.norm,
            limit=limits.get(change),
        )


def _of_weights(
    position: int, parameters: Sequence[ComparedParameter], tolerance: Tolerance
) -> Iterator[Regression]:
    limit = tolerance.norm_limit(of_ranks=True)
    apart = [
        (one, pair)
        for one in parameters
        if (pair := one.pairs[position]) and distance(pair.weight_ratio) > math.log1p(limit)
    ]
    if not apart:
        return
    apart.sort(key=lambda item: -distance(item[1].weight_ratio))
    base, other = apart[0][0].sides[0], apart[0][0].sides[position]
    yield Regression(
        kind="weights",
        side=position,
        subjects=tuple(one.name for one, _ in apart),
        message="",
        before=None if base is None else base.weight_norm,
        after=None if other is None else other.weight_norm,
        limit=limit,
    )


def _of_loss(
    position: int, sides: Sequence[Side], curves: Sequence[ComparedCurve], tolerance: Tolerance
) -> Iterator[Regression]:
    ends: list[tuple[str, float | None, float | None, float]] = [
        (curve.optimizer, parting.base_end, parting.end, parting.increase)
        for curve in curves
        if curve.kind == "loss" and (parting := curve.partings[position]) is not None
    ]
    base, other = sides[0], sides[position]
    if not (base.is_run and other.is_run) or base.step is not None:
        # The judged step comes after the training steps.
        ends = [("", base.loss, other.loss, _increase(base.loss, other.loss))]
    for optimizer, before, after, increase in ends:
        # NaN does not compare as an increase: it is worse if the base was finite.
        is_broken = math.isfinite(before or 0.0) and not math.isfinite(after or 0.0)
        if increase > tolerance.loss or is_broken:
            yield Regression(
                kind="loss",
                side=position,
                subjects=(optimizer,) if optimizer else (),
                message="",
                before=before,
                after=after,
                limit=tolerance.loss,
            )


def _increase(before: float | None, after: float | None) -> float:
    """Return the relative increase of a loss; 0 if one is unknown."""
    if before is None or after is None or before == after:
        return 0.0
    # The loss may be negative, as a log-likelihood is.
    return (after - before) / abs(before) if before else math.copysign(math.inf, after)


def _of_ending(position: int, sides: Sequence[Side]) -> Iterator[Regression]:
    before, after = (_trouble(side) for side in (sides[0], sides[position]))
    if after and not before:
        yield Regression(
            kind="ending",
            side=position,
            subjects=(),
            message=after,
            before=None,
            after=None,
            limit=None,
        )


def _trouble(side: Side) -> str:
    """Return how a run ended unintentionally; otherwise empty."""
    run = side.report.training_run
    ending = None if run is None else run.ending
    return ending.line if ending is not None and ending.is_trouble else ""
