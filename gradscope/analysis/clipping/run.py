"""The effect of a script's own clips, by line."""

import math
from collections.abc import Iterable, Iterator, Sequence

from gradscope.analysis.clipping.clips import Clip, ClippedStep, Clips, clipped_steps
from gradscope.analysis.clipping.sections import (
    Check,
    Contributions,
    Numbers,
    OptimizerFacts,
    Section,
)
from gradscope.analysis.clipping.series import ClipPoint, ClipSeries, clip_series
from gradscope.analysis.recording_index import RecordingIndex
from gradscope.analysis.windows import Series
from gradscope.phrasing import counted
from gradscope.recording.events import BackwardEvent, StepEvent, UnscaleEvent
from gradscope.recording.records import Recording, Site

_STEPS_READ = 400
"""Number of steps whose contributions to the norm are read."""
_NORMS_READ, _LEAST_READ = 200_000, 50
"""Number of norms up to which these are read, and number of steps that are read anyhow."""


def run_sections(recording: Recording) -> tuple[Section, ...]:
    """Return a section for each line that clips, or for each optimizer if nothing clips."""
    indexed = RecordingIndex(recording)
    if not indexed.is_run:
        return ()
    lines = clip_series(indexed)
    if lines:
        return tuple(_Line(indexed, line).section() for line in lines)
    clips = indexed.shared(Clips)
    return tuple(_unclipped(indexed, series) for series in clips.windows.series if series.windows)


class _Line:
    """A line that clips."""

    def __init__(self, indexed: RecordingIndex, line: ClipSeries) -> None:
        self._case, self._line = indexed, line
        self._clips = indexed.shared(Clips)
        self._steps = [clip.step for clip in line.calls if clip.step is not None]

    def section(self) -> Section:
        """Return the section of the clips."""
        line = self._line
        is_by_norm = line.method in ("norm", "per-tensor")
        given = line.limit if is_by_norm else None
        numbers = Numbers.of(line.points, given=given, by_norm=is_by_norm, in_order=True)
        limits = sorted({clip.limit for clip in line.calls if clip.limit is not None})
        return Section(
            text=line.text,
            site=self._case.site(line.site),
            method=None if line.limit is None else line.method,
            limit=line.limit,
            limits=(limits[0], limits[-1]) if len(limits) > 1 else None,
            norm_type=line.norm_type,
            is_advised=False,
            points=line.points,
            norms=numbers.norms,
            bins=numbers.bins,
            coefficients=numbers.coefficients,
            cosines=numbers.cosines,
            advice=numbers.advice,
            sweep=numbers.sweep,
            contributions=self._contributions(),
            methods=(),
            checks=tuple(self._checks()),
            shares_after=line.method not in ("norm", None) and line.limit is not None,
            optimizer=_facts(self._case, line.optimizer, self._steps),
        )

    def _contributions(self) -> Contributions:
        """Return who makes the norm that is clipped: the gradients as the step finds them.

        One factor for all changes no share; contributions after other clips are reported unchanged.
        """
        held = frozenset().union(*{clip.parameters or () for clip in self._line.calls})
        steps = _spread([event.step for event in self._steps], len(held))
        left = [_of_own(self._clips, step, held) for step in steps]
        if self._line.method != "norm":
            return Contributions.of(self._case.recording, left, ())
        factors = {point.step: point.coefficient for point in self._line.points}
        before = [
            {parameter: norm / factor for parameter, norm in norms.items()}
            for step, norms in zip(steps, left, strict=True)
            # A factor of zero has erased what was there.
            if (factor := factors.get(step, 1.0)) > 0
        ]
        return Contributions.of(self._case.recording, before, left)

    def _checks(self) -> Iterator[Check]:
        calls = self._line.calls
        yield _order(calls)
        if scale := _scale(self._clips, calls):
            yield scale
        if scope := _scope(self._case, calls):
            yield scope
        if broken := _nonfinite(calls):
            yield broken


def _spread(steps: Sequence[int], parameters: int) -> list[int]:
    """Return steps that are spread over the run: fewer ones of many parameters."""
    own = list(dict.fromkeys(steps))
    most = min(_STEPS_READ, max(_NORMS_READ // max(parameters, 1), _LEAST_READ))
    return own[:: -(-len(own) // most)] if own else own


def _of_own(clips: Clips, step: int, held: frozenset[int]) -> dict[int, float]:
    """Return the norms in a step, of some parameters; of all where these are not known."""
    norms = clips.norms_in(step)
    return {index: norm for index, norm in norms.items() if index in held or not held}


def _order(calls: Sequence[Clip]) -> Check:
    """Check that the clip is between the backward and the step."""
    vain = [clip for clip in calls if clip.step is None]
    inside = [
        clip for clip in calls if any(isinstance(event, BackwardEvent) for event in clip.later)
    ]
    count = f"{len(calls):,}"
    if inside:
        return Check(
            is_right=False,
            text=f"another backward adds to clipped gradients in {len(inside):,} of {count} calls",
        )
    # A script may end, or be stopped, between its last clip and the step.
    if len(vain) > 1 or len(vain) == len(calls):
        return Check(
            is_right=False, text=f"{len(vain):,} of {count} calls are not followed by a step"
        )
    return Check(is_right=True, text=f"between backward and step in {count} calls")


def _scale(clips: Clips, calls: Sequence[Clip]) -> Check | None:
    """Check that gradients are unscaled first; None if nothing scales them."""
    scaled = sum(clip.event.scaled for clip in calls)
    if scaled:
        return Check(
            is_right=False,
            text=f"gradients are still multiplied by the loss scale in {scaled:,} of "
            f"{counted(len(calls), 'call')}",
        )
    if any(isinstance(event, UnscaleEvent) for event in clips.windows.events):
        return Check(
            is_right=True, text="after unscale_, so the limit applies to unscaled gradients"
        )
    return None


def _scope(indexed: RecordingIndex, calls: Sequence[Clip]) -> Check | None:
    """Check that the clip gets everything that the optimizer uses; None if unknown."""
    # The hash of a clip covers all events up to its step; the objects are shared.
    own = {id(clip) for clip in calls}
    steps: list[ClippedStep] = [
        step
        for step in indexed.shared(clipped_steps)
        if any(id(clip) in own for clip in step.clips)
    ]
    if not steps:
        return None
    worst = max(steps, key=lambda step: len(step.outside))
    whole = len(worst.inside) + len(worst.outside)
    if not worst.outside:
        return Check(is_right=True, text=f"all {counted(whole, 'parameter')} of the step")
    return Check(
        is_right=False,
        text=f"{len(worst.inside):,} of the {counted(whole, 'parameter')} that the step uses",
    )


def _nonfinite(calls: Sequence[Clip]) -> Check | None:
    """Describe NaN and infinite norms, and their effect on the step; None without any."""
    broken = [clip for clip in calls if not math.isfinite(clip.norm_before or 0.0)]
    if not broken:
        return None
    spread = [clip.step for clip in broken if clip.step is not None and clip.step.nonfinite]
    first = broken[0].event.step
    words = f"non-finite norm in {counted(len(broken), 'call')}, first in step {first:,}"
    if spread:
        return Check(
            is_right=False,
            text=f"{words}: it makes {spread[0].nonfinite:,} gradients non-finite",
        )
    return Check(is_right=True, text=f"{words}: no step uses it")


def _unclipped(indexed: RecordingIndex, series: Series) -> Section:
    """Return the norms of an optimizer whose gradients nothing clips."""
    steps = [window.step for window in series.windows]
    points = tuple(
        ClipPoint(step=step.step, norm=norm, coefficient=1.0, cosine=None)
        for step in steps
        if (norm := step.norm) is not None
    )
    numbers = Numbers.of(points, given=None, by_norm=True, in_order=True)
    clips = indexed.shared(Clips)
    held = frozenset(series.parameters)
    of_own = [
        _of_own(clips, step, held) for step in _spread([step.step for step in steps], len(held))
    ]
    return Section(
        text=series.name,
        site=_site(indexed, series),
        method=None,
        limit=None,
        limits=None,
        norm_type=2.0,
        is_advised=False,
        points=points,
        norms=numbers.norms,
        bins=numbers.bins,
        coefficients=None,
        cosines=None,
        advice=numbers.advice,
        sweep=numbers.sweep,
        contributions=Contributions.of(indexed.recording, of_own, ()),
        methods=(),
        checks=(),
        optimizer=_facts(indexed, next(iter(series.optimizers), None), steps),
    )


def _site(indexed: RecordingIndex, series: Series) -> Site | None:
    return None if series.record is None else indexed.site(series.record.site)


def _facts(
    indexed: RecordingIndex, optimizer: int | None, steps: Iterable[StepEvent]
) -> OptimizerFacts:
    events = list(steps)
    rates = [rate for event in events if (rate := event.lr) is not None]
    titles = {step.index: step.optimizer for step in indexed.recording.steps}
    title = next((name for event in events if (name := titles.get(event.step))), "")
    records = indexed.shared(Clips).windows.optimizers
    family = records[optimizer].family if optimizer is not None else "sgd"
    return OptimizerFacts(title=title, family=family, rate=rates[-1] if rates else None)
