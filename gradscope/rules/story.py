"""What led to the first NaN or infinity of a run, told in the order of its steps."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from statistics import median

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short, times_text
from gradscope.recording.finding import Consequence, Finding, RelatedLocation
from gradscope.rules.context import RuleContext

_ENDINGS = frozenset({"GS103", "GS104"})
_BEGINNINGS = frozenset({"GS101", "GS107", "GS108", "GS115", "GS116"})
"""Rules that find gradients, updates or outputs that grow."""
_STEPS = 32
"""Number of steps before the end that belong to the story."""
_USUAL = 64
"""Number of steps before these with whose norms they are compared."""
_FEWEST = 5
_TIMES = 10.0
"""Multiple of the usual norm, as in GS107."""
_RAISED = 2.0
"""Factor by which a learning rate is raised from one step to the next. Chosen: warm-ups raise it by
less after their first steps.
"""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step before the end."""

    number: int
    norm: float
    rate: float | None
    site: int | None


def in_one_story(context: RuleContext, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a run; the first non-finite one includes what led to it."""
    endings = [one for one in findings if one.rule in _ENDINGS and one.step is not None]
    if not context.is_run or not endings:
        return list(findings)
    # Everything is broken after the first NaN, so only the first one has a story.
    end = min(endings, key=lambda one: one.step or 0)
    before = [one for one in findings if one is not end and _leads_to(one, end)]
    told = _told(context, end, before)
    return [told if one is end else one for one in findings if one not in before]


def _leads_to(finding: Finding, end: Finding) -> bool:
    last = end.step or 0
    is_near = finding.step is not None and last - _STEPS <= finding.step <= last
    return is_near and finding.rule in _BEGINNINGS


def _told(context: RuleContext, end: Finding, before: Sequence[Finding]) -> Finding:
    chapters = [(one.step or 0, one.message) for one in before]
    related: list[RelatedLocation] = []
    for series in _series_of(context, end):
        steps = _steps_before(series, end.step or 0)
        raised = _raise(steps)
        if raised is not None:
            chapters.append((raised[1].number, _raise_text(series, *raised)))
            where = context.related(raised[1].site, "the first step with the raised learning rate")
            related += [where] if where else []
        growth = _growth(steps)
        # GS107 tells of the same growth.
        if growth is not None and not any(one.rule == "GS107" for one in before):
            chapters.append((growth[0].number, _growth_text(*growth)))
    if not chapters:
        return end
    for one in before:
        where = context.related(one.location, f"{one.rule}: {one.message}")
        related += [where] if where else []
    text = "; ".join(message for _, message in sorted(chapters, key=lambda one: one[0]))
    absorbed = [Consequence(rule=one.rule, name=one.name, message=one.message) for one in before]
    return replace(
        end,
        message=f"{end.message}; before this, {text}",
        related=(*end.related, *related),
        consequences=(*end.consequences, *absorbed),
    )


def _series_of(context: RuleContext, end: Finding) -> Iterator[Series]:
    """Yield the steps of the only optimizer, if there is one."""
    series = context.shared(Windows).series
    # With several optimizers it is unknown whose steps have led to the end.
    yield from series if len(series) == 1 else ()


def _steps_before(series: Series, end: int) -> list[_Step]:
    found = []
    for window in series.windows:
        step = window.step
        if step.step < end and step.norm is not None:
            found.append(_Step(step.step, step.norm, step.lr, step.site))
    return found[-_USUAL - _STEPS :]


def _raise(steps: Sequence[_Step]) -> tuple[_Step, _Step] | None:
    """Return the last two neighbouring steps of which the second has a far larger rate."""
    near = steps[-_STEPS:]
    for earlier, later in zip(reversed(near[:-1]), reversed(near[1:]), strict=True):
        if earlier.rate and later.rate and later.rate >= _RAISED * earlier.rate:
            return earlier, later
    return None


def _growth(steps: Sequence[_Step]) -> tuple[_Step, _Step, float] | None:
    """Return the first and the last of the large gradients at the end, and the usual norm."""
    # The last steps are left out, as growth would raise the norm that it is compared with.
    usual = [one.norm for one in steps[:-_FEWEST]][-_USUAL:] if len(steps) > _FEWEST else []
    finite = [norm for norm in usual if isfinite(norm)]
    if len(finite) < _FEWEST:
        return None
    typical = median(finite)
    large = 0
    for one in reversed(steps[-_STEPS:]):
        # A norm that is not finite is part of the growth, though it has no size to report.
        if isfinite(one.norm) and one.norm <= _TIMES * typical:
            break
        large += 1
    run = [one for one in steps[len(steps) - large :] if isfinite(one.norm)]
    return (run[0], run[-1], typical) if run and typical > 0 else None


def _raise_text(series: Series, earlier: _Step, later: _Step) -> str:
    return (
        f"step {later.number:,} raises the learning rate of {series.name} from "
        f"{short(earlier.rate)} to {short(later.rate)}"
    )


def _growth_text(first: _Step, last: _Step, usual: float) -> str:
    times = times_text(first.norm / usual)
    start = (
        f"the gradient of step {first.number:,} has a norm of {short(first.norm)}, "
        f"{times} the usual"
    )
    end = f", and that of step {last.number:,} {short(last.norm)}"
    return start if first == last else start + end
