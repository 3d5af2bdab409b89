"""Events before each step of a run, in order, with lines, numbers and seconds."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gradscope.analysis.loop_windows import LoopWindow, windows
from gradscope.analysis.report import Report
from gradscope.analysis.run_optimizers import Optimizers
from gradscope.analysis.timeline import Pattern as Lane
from gradscope.analysis.timeline import Spelling
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import shown_site
from gradscope.phrasing import counted, printable
from gradscope.recording.events import BackwardEvent, Event
from gradscope.recording.records import Recording
from gradscope.report.documents.run_phrasing import heading, pattern_parts
from gradscope.report.html.columns import Json, numbers, positions, single_numbers, texts
from gradscope.report.html.page import Chart

_WORDS = {"scaler-step": "scaler.step"}
"""Events without a name in a short pattern."""

_TOLD: Mapping[str, tuple[tuple[str, str, float | None], ...]] = {
    "backward": (
        ("loss", "loss", None),
        ("divided", "divided by", 1.0),
        ("reached", "parameters reached", None),
        ("added", "added to what no step had used", 0.0),
        ("stale", "added to what a step had used", 0.0),
    ),
    "grad": (("reached", "reached", None),),
    "zero": (
        ("parameters", "gradients", None),
        ("unspent", "not used by any step", 0.0),
    ),
    "unscale": (("scale", "scale", None),),
    "clip-norm": (
        ("norm", "norm", None),
        ("max_norm", "limit", None),
        ("parameters", "parameters", None),
    ),
    "clip-value": (
        ("norm", "norm", None),
        ("clip_value", "limit", None),
        ("parameters", "parameters", None),
    ),
    "step": (
        ("norm", "gradient norm", None),
        ("lr", "learning rate", None),
        ("with_gradient", "parameters with gradient", None),
        ("none", "without", 0.0),
        ("stale", "used before", 0.0),
        ("backwards", "backwards", 1.0),
        ("nonfinite", "non-finite", 0.0),
    ),
    "scaler-update": (("scale_before", "scale before", None), ("scale_after", "after", None)),
    "scheduler": (("lr_before", "rate before", None), ("lr_after", "after", None)),
}
"""By kind: names of numbers, their titles, and the default value that is not shown."""

_NOTED: Mapping[str, Mapping[str, str]] = {
    "backward": {"scaled": "scaled", "retain": "retain_graph", "create": "create_graph"},
    "zero": {"set_to_none": "set to None"},
    "clip-norm": {"scaled": "still scaled"},
    "clip-value": {"scaled": "still scaled"},
    "step": {"manual": "by hand"},
    "scaler-step": {"skipped": "skipped", "found_inf": "found NaN or inf"},
}
"""By kind: text for a number that is not 0."""


def event_word(event: Event, word: str) -> str:
    """Return the name of an event, given its name in a short pattern."""
    if isinstance(event, BackwardEvent) and event.has_forward:
        return f"forward, {word}"
    return word or _WORDS.get(event.kind, event.kind)


def event_numbers(event: Event) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an event, each after its title."""
    for name, called, unsaid in _TOLD.get(event.kind, ()):
        number = event.numbers.get(name)
        if number is not None and number != unsaid:
            yield called, number


def event_notes(event: Event) -> Iterator[str]:
    """Yield the texts on an event without a number."""
    for name, words in _NOTED.get(event.kind, {}).items():
        # A step inside compiled code is observed like a manual one.
        if event.numbers.get(name) and not (name == "manual" and event.optimizer is not None):
            yield words


_EVENTS = 10_000
"""Number of events above which some steps are omitted."""
_LANES = 40
_AROUND = 2
"""Number of steps before and after that of a finding whose events are kept."""
_ENDS = 20
"""Number of steps kept at the beginning and at the end."""
_UNUSUAL = 40
"""Number of steps kept per unusual lane."""
_LANE, _TALLEST, _EVENT, _HEAD = 46, 420, 27, 90
"""Heights in pixels: of a lane, of all lanes at most, of an event, and of the header."""
_SHOWN = 12
"""Maximum number of events shown per step."""


def timeline(report: Report, run: TrainingRun) -> Chart | None:
    """Return the chart; None if no events led to a step."""
    found = windows(report.recording)
    if not found or not run.patterns:
        return None
    lanes = [0] * len(found)
    for position, lane in enumerate(run.patterns):
        for window in lane.windows:
            lanes[window] = position
    kept = kept_windows(found, lanes, report, run)
    return Chart(
        name="timeline",
        kind="timeline",
        title="Events before each step",
        caption=" ".join(_caption(found, kept, is_untimed=bool(report.recording.untimed))),
        content={
            "lanes": [_lane(lane, run, report) for lane in run.patterns[:_LANES]],
            "moreLanes": max(len(run.patterns) - _LANES, 0),
            "windows": _windows(found, lanes, kept, report.recording),
            **_events([found[position] for position in kept], report),
            "first": _first(found, report),
        },
        height=_height(found, min(len(run.patterns), _LANES)),
    )


def _height(found: Sequence[LoopWindow], lanes: int) -> int:
    most = max(len(window.events) for window in found)
    return _HEAD + min(_LANE * lanes, _TALLEST) + _EVENT * min(most, _SHOWN)


def _lane(lane: Lane, run: TrainingRun, report: Report) -> Json:
    has_others = lane.optimizer is None or len(run.optimizers) > 1
    return {
        "optimizer": printable(heading(run, lane.optimizer)) if has_others else "",
        "parts": [printable(part) for part in pattern_parts(lane)],
        "count": lane.count,
        "first": lane.first,
        "isTypical": lane.is_typical,
        "line": shown_site(lane.site, report.target.root),
    }


def _windows(
    found: Sequence[LoopWindow], lanes: Sequence[int], kept: Sequence[int], recording: Recording
) -> Json:
    """Return a row per window: its step, its lane, its start, and the number of kept events."""
    known = set(kept)
    return {
        "step": positions(window.step.index for window in found),
        "lane": positions(lanes),
        "skipped": positions(int(window.is_skipped) for window in found),
        "seconds": single_numbers(_lengths(found)),
        "timed": positions(_timed(found, recording)),
        "events": positions(
            len(window.events) if position in known else None
            for position, window in enumerate(found)
        ),
    }


def _timed(found: Sequence[LoopWindow], recording: Recording) -> Iterator[int]:
    """Yield 1 for a window whose calls were timed, 0 for others."""
    untimed = sorted(recording.untimed, key=lambda steps: steps.start)
    for window in found:
        at = bisect_right(untimed, window.step.index, key=lambda steps: steps.start)
        yield int(at == 0 or window.step.index not in untimed[at - 1])


def _lengths(found: Sequence[LoopWindow]) -> Iterator[float | None]:
    """Yield the duration of each window, from the end of the previous one."""
    before = None
    for window in found:
        if not window.events:
            yield None
            continue
        start = window.events[0].seconds if before is None else before
        before = window.events[-1].seconds
        yield before - start


class _Call(NamedTuple):
    """What events share that are made by one line."""

    word: str
    subject: str
    line: str
    names: tuple[str, ...]
    """Names of the events' numbers."""
    notes: tuple[str, ...]


def _events(found: Sequence[LoopWindow], report: Report) -> dict[str, Json]:
    """Return the events of windows in order, with their common values apart."""
    recording = report.recording
    every = windows(recording)
    spelling = Spelling(every, Optimizers(recording, every))
    calls: dict[_Call, int] = {}
    at: list[int] = []
    seconds: list[float] = []
    values: list[float] = []
    for window in found:
        for event in window.events:
            reported = dict(event_numbers(event))
            word = event_word(event, spelling.word(event, window))
            call = _call(event, word, tuple(reported), recording)
            at.append(calls.setdefault(call, len(calls)))
            seconds.append(event.seconds)
            values += reported.values()
    return {
        "calls": {
            "word": texts(printable(call.word) for call in calls),
            "subject": texts(printable(call.subject) for call in calls),
            "line": texts(call.line for call in calls),
            "names": [list(call.names) for call in calls],
            "notes": [list(call.notes) for call in calls],
        },
        "events": {"call": positions(at), "seconds": numbers(seconds), "numbers": numbers(values)},
    }


def _call(event: Event, word: str, names: tuple[str, ...], recording: Recording) -> _Call:
    site = None if event.site is None else recording.sites[event.site]
    line = shown_site(site, recording.target.root)
    return _Call(word, event.subject, line, names, tuple(event_notes(event)))


def kept_windows(
    found: Sequence[LoopWindow], lanes: Sequence[int], report: Report, run: TrainingRun
) -> list[int]:
    """Return the windows whose events are shown: all, or the most important and some between."""
    if sum(len(window.events) for window in found) <= _EVENTS:
        return list(range(len(found)))
    kept: dict[int, None] = {}
    room = _EVENTS
    for position in _by_interest(found, lanes, report, run):
        size = len(found[position].events)
        if position not in kept and size <= room:
            kept[position] = None
            room -= size
    return sorted(kept)


def _by_interest(
    found: Sequence[LoopWindow], lanes: Sequence[int], report: Report, run: TrainingRun
) -> Iterator[int]:
    steps = {finding.step for finding in report.findings} | {row.step for row in run.captured_steps}
    near = {step + by for step in steps if step is not None for by in range(-_AROUND, _AROUND + 1)}
    yield from (position for position, window in enumerate(found) if window.step.index in near)
    yield from range(min(_ENDS, len(found)))
    yield from range(max(len(found) - _ENDS, 0), len(found))
    for lane in run.patterns:
        if not lane.is_typical:
            yield from lane.windows[:_UNUSUAL]
    # Evenly and in increasing density: halves of an interval come before its quarters.
    stride = 1
    while stride < len(found):
        stride *= 2
    while stride:
        yield from range(0, len(found), stride)
        stride //= 2


def _first(found: Sequence[LoopWindow], report: Report) -> int:
    """Return the window to begin with: that of the first finding with a step, else the last."""
    steps = [finding.step for finding in report.findings if finding.step is not None]
    last = max(
        position for position, window in enumerate(found) if window.is_finished or position == 0
    )
    return next(
        (
            position
            for step in steps
            for position, one in enumerate(found)
            if one.step.index == step
        ),
        last,
    )


def _caption(
    found: Sequence[LoopWindow], kept: Sequence[int], *, is_untimed: bool
) -> Iterator[str]:
    yield "Steps with the same events share a lane; colour shows the position in the run."
    yield "Use ← and → to move between steps, with Shift to the next unusual one."
    yield "Durations are between events, including gradscope's own time."
    if is_untimed:
        yield "Where no gradient was measured, only the mean duration of the step is known."
    if len(kept) < len(found):
        more = counted(len(found) - len(kept), "step")
        yield f"To keep the file small, the events of {more} are omitted."
