"""Why a rule did or did not find anything in a recording."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding
from gradscope.recording.records import Recording
from gradscope.rules.candidates import Candidates, candidates_of
from gradscope.rules.catalogue import CANDIDATES
from gradscope.rules.context import RuleContext
from gradscope.rules.engine import Judge, check_settings
from gradscope.rules.measurement import Measurement
from gradscope.rules.rule import Rule
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The measurements of one rule on one recording, and its conclusion."""

    code: str
    name: str
    findings: tuple[Finding, ...]
    """Findings of the rule itself, before findings with the same cause are grouped."""
    skip_reason: str | None
    """Why the rule could not judge the recording; None if it could."""
    judged_steps: int | None
    """Number of captured steps that the rule judged; None if it does not judge captured steps."""
    skipped_steps: tuple[tuple[str, int], ...]
    """Reasons why the rule could not judge captured steps, each with their number."""
    candidates: tuple[Candidates, ...]
    """Objects that the rule searches for, with their number in the recording."""
    measurements: tuple[Measurement, ...]
    """Numbers that the rule compared with a limit: those beyond it first, then the closest."""


def explain(
    recording: Recording, kind: type[Rule], settings: Settings = DEFAULT_SETTINGS
) -> Explanation:
    """Run one rule on a recording and collect its measurements.

    Args:
        recording: What is judged.
        kind: The rule.
        settings: Thresholds and limits. The rule runs even if they leave it out.

    Raises:
        GradscopeError: The settings name a rule or a threshold that does not exist.
    """
    check_settings(settings)
    context = RuleContext(recording, norm_limits=settings.norm_limits)
    judge = Judge(context, replace(settings, select=(), ignore=(), extend_select=(kind.code,)))
    rule = judge.rule(kind)
    reason = judge.skip_reason(rule)
    reasons = Counter[str | None]()
    of_captured_steps = judge.judges_captured_steps(rule)
    if of_captured_steps:
        reasons = judge.captured_steps.skip_reasons(rule)
    findings = tuple(judge.findings(rule)) if reason is None else ()
    return Explanation(
        code=kind.code,
        name=kind.name,
        findings=findings,
        skip_reason=reason,
        judged_steps=reasons.pop(None, 0) if of_captured_steps else None,
        skipped_steps=tuple(
            (reason, count) for reason, count in reasons.most_common() if reason is not None
        ),
        candidates=candidates_of(CANDIDATES[kind], recording),
        measurements=_sorted(one for one in context.measurements if one.rule == kind.code),
    )


def _sorted(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    # A rule may compare twice, once to decide whether it can judge.
    once = dict.fromkeys(measurements)
    return tuple(sorted(once, key=lambda one: (not one.is_beyond, -_closeness(one))))


def _closeness(measurement: Measurement) -> float:
    distance = measurement.distance
    # NaN compares as false with everything, so that the order would depend on that of the rules.
    return 0.0 if math.isnan(distance) else distance
