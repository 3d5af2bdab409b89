"""Applies one-step rules to the captured steps of a run: one finding per lasting cause."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from gradscope.frozen import dataclass
from gradscope.recording.finding import SEVERITIES, Finding
from gradscope.rules.captured_steps.series import JudgedStep, Series, series_of
from gradscope.rules.captured_steps.training import Training
from gradscope.rules.context import RuleContext
from gradscope.rules.fingerprint import by_cause
from gradscope.rules.rule import Rule

NO_CAPTURED_STEP = "no step of the run was captured"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A cause, as the captured steps of one series show it."""

    finding: Finding
    count: int


@dataclass(frozen=True)
class CapturedSteps:
    """The captured steps of a run, as one-step rules judge them."""

    context: RuleContext
    """Context of the run."""

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The captured steps, grouped by the line of their backward."""
        return series_of(Training(self.context))

    def _series_for(self, rule: Rule) -> list[Series]:
        return [one for one in self.series if rule.judges_late or not one.is_late]

    def skip_reason(self, rule: Rule) -> str | None:
        """Return why a rule can judge no captured step, None if it can judge one."""
        reasons = self.skip_reasons(rule)
        if None in reasons or any(rule.in_run(self.context)):
            return None
        return reasons.most_common(1)[0][0] if reasons else NO_CAPTURED_STEP

    def skip_reasons(self, rule: Rule) -> Counter[str | None]:
        """Return why a rule cannot judge captured steps; with None, how many it can judge."""
        return Counter(
            _skip_reason(rule, one.context)
            for series in self._series_for(rule)
            for one in series.judged
        )

    def check(self, rule: Rule) -> Iterator[Finding]:
        """Yield one finding for each cause that captured steps or the run's events show."""
        seen, told = list(self._findings_of(rule)), list(rule.in_run(self.context))
        # Later captured steps show whether the state lasted, and its later causes.
        yield from (one for one in seen if not any(_is_later(one, other) for other in told))
        yield from (
            one
            for one in told
            if all(_is_later(other, one) or not _is_about(other, one) for other in seen)
        )

    def _findings_of(self, rule: Rule) -> Iterator[Finding]:
        shown = [_shown(rule, series) for series in self._series_for(rule)]
        causes = by_cause([[one.finding for one in ones] for ones in shown])
        counts = {id(one.finding): one.count for ones in shown for one in ones}
        for cause in causes:
            findings = [finding for _, finding in cause]
            yield replace(_united(findings), count=sum(counts[id(one)] for one in findings))


def _skip_reason(rule: Rule, context: RuleContext) -> str | None:
    """Return why a rule cannot judge a captured step, None if it can."""
    if rule.judges_learning and context.run is not None and context.run.seeks_derivative:
        return "nothing is trained: the gradient is for an input or a variable"
    return rule.skip_reason(context)


def _is_later(finding: Finding, other: Finding) -> bool:
    return _is_about(finding, other) and (finding.step or 0) > (other.step or 0)


def _is_about(finding: Finding, other: Finding) -> bool:
    return not set(finding.parameters).isdisjoint(other.parameters)


def _shown(rule: Rule, series: Series) -> list[_Shown]:
    """Return the causes that the captured steps of one backward show."""
    captured_steps = series.judged
    able = [captured for captured in captured_steps if _skip_reason(rule, captured.context) is None]
    found = [[_of_run(one, captured) for one in rule.check(captured.context)] for captured in able]
    shown = []
    for cause in by_cause(found):
        positions = [position for position, _ in cause]
        findings = [finding for _, finding in cause]
        if rule.lasts != "no" and not _is_lasting(rule, positions, series, able):
            continue
        # What has to last may be worse by chance in one step; anything else is as bad as its worst
        # step.
        together = _united(findings) if rule.lasts == "no" else _usual(findings)
        shown.append(_Shown(together, sum(able[position].stands_for for position in positions)))
    return shown


def _of_run(finding: Finding, captured: JudgedStep) -> Finding:
    return replace(finding, step=captured.step)


def _is_lasting(
    rule: Rule, positions: Sequence[int], series: Series, able: Sequence[JudgedStep]
) -> bool:
    """Return whether captured steps keep showing a cause after the first one that does.

    If nothing is trained, no later step can confirm an earlier one: most steps must show it.
    """
    if series.is_untrained:
        return 2 * len(positions) > len(able)
    # What has to be there always must be there in the first captured step.
    is_first = positions[0] == 0 or rule.lasts != "always"
    return is_first and len(positions) > 1 and 2 * len(positions) >= _in_turn(able, positions)


def _in_turn(able: Sequence[JudgedStep], positions: Sequence[int]) -> int:
    """Return the number of captured steps from the first that shows a cause to the end.

    Where optimizers take turns at one line, only the turns of the same one count.
    """
    later = [_stepped(one) for one in able[positions[0] :]]
    same = [one == later[0] for one in later]
    takes_turns = not all(same[: positions[-1] - positions[0]])
    return sum(same) if takes_turns else len(later)


def _stepped(captured: JudgedStep) -> frozenset[int]:
    run = captured.context.run
    return frozenset() if run is None else run.stepped


def _united(findings: Sequence[Finding]) -> Finding:
    """Return the findings of one cause as one: the first of the worst."""
    first = min(findings, key=lambda one: (_badness(one), one.step or 0))
    return _with_all(first, findings)


def _usual(findings: Sequence[Finding]) -> Finding:
    """Return the first finding of one cause, with the median severity of all."""
    # Of an even number, the milder one in the middle counts.
    usual = sorted(findings, key=_badness)[len(findings) // 2]
    return replace(_with_all(findings[0], findings), severity=usual.severity)


def _badness(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _with_all(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Return a finding about the parameters and modules of all findings of its cause."""
    return replace(
        finding,
        parameters=tuple(dict.fromkeys(name for one in findings for name in one.parameters)),
        modules=tuple(dict.fromkeys(name for one in findings for name in one.modules)),
    )
