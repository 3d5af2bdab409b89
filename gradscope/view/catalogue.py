"""What the list says of each recording, and how far it is; read only where files have changed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime
from math import nan
from pathlib import Path
from threading import Lock
from typing import Literal

from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun, ending_text
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.finding import Severity
from gradscope.recording.overview import LossCourse, Overview, course_of, read_overview
from gradscope.view.library import Entry, Library, Stamp

StateKind = Literal["running", "silent", "ended", "failed", "unreadable"]

_PATIENCE, _STEPS = 10.0, 20
"""Seconds without a write, and duration of so many steps, after which a run counts as silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a recording."""

    kind: StateKind
    text: str
    """Description, such as `silent since 14:03`."""


def state_of(overview: Overview, written: float, now: float) -> RunState:
    """Return the state of a recording.

    Whether the process of a silent run was killed or waits, its recording cannot tell.

    Args:
        overview: The recording.
        written: When it was last written, in seconds since the epoch.
        now: The time in seconds since the epoch.
    """
    ending, root = overview.ending, overview.header.target.root
    if ending is None and not overview.header.finished:
        a_step = overview.seconds / overview.steps if overview.steps else 0.0
        silence = now - written
        if silence <= max(_PATIENCE, _STEPS * a_step):
            return RunState(kind="running", text="running")
        return RunState(kind="silent", text=f"silent since {_clock(written, now)}")
    told = ending_text(ending, root, is_complete=overview.header.finished)
    if told is not None and told.is_trouble:
        return RunState(kind="failed", text=told.line)
    return RunState(kind="ended", text="ended" if told is None else told.line)


def _clock(moment: float, now: float) -> str:
    """Return a time of day, with the date unless it is today's."""
    then, today = datetime.fromtimestamp(moment), datetime.fromtimestamp(now)
    return f"{then:%H:%M}" if then.date() == today.date() else f"{then:%Y-%m-%d %H:%M}"


ReportsOf = Callable[[Sequence[Path]], Sequence[Report]]
"""Reads and judges the recordings of one entry.

Raises GradscopeError if one cannot be read.
"""

_LARGEST = 64_000_000
"""Size in bytes up to which a recording is judged for the list; larger ones once they are opened.
"""
_AGAIN = 20.0
"""Seconds after which a recording that has grown is judged again for the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What judging a recording has shown."""

    levels: tuple[Severity, ...]
    """Levels of the findings."""
    losses: LossCourse | None
    """Losses as the page shows them: of all passes of a step together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A recording in the list."""

    entry: Entry
    state: RunState
    steps: int
    losses: LossCourse | None
    judged: Judged | None
    """None as long as it was not judged."""
    is_large: bool
    """Whether it is judged only when it is opened."""


@dataclass(slots=True)
class _Known:
    stamp: Stamp = ()
    overviews: tuple[Overview, ...] = ()
    error: str = ""
    judged: Judged | None = None
    judged_stamp: Stamp | None = None
    judged_at: float = field(default=-_AGAIN)


class Catalogue:
    """The recordings of a library, with what is known of each.

    Args:
        library: Where they are.
        reports_of: Reads and judges one of them.
        clock: Returns the time in seconds since the epoch.
    """

    def __init__(
        self, library: Library, reports_of: ReportsOf, clock: Callable[[], float] = time.time
    ) -> None:
        self.library, self._reports_of, self._clock = library, reports_of, clock
        self._known: dict[str, _Known] = {}
        # Each request has a thread of its own.
        self._lock = Lock()

    def listed(self) -> tuple[Listed, ...]:
        """Return all recordings, the last written first."""
        entries = self.library.scan()
        with self._lock:
            for key in self._known.keys() - {one.key for one in entries}:
                del self._known[key]
            return tuple(self._listed(entry) for entry in entries)

    def of(self, entry: Entry) -> Listed:
        """Return one recording."""
        with self._lock:
            return self._listed(entry)

    def note(self, entry: Entry, stamp: Stamp, reports: Sequence[Report]) -> None:
        """Take note of what judging a recording has shown, given its stamp before."""
        with self._lock:
            known = self._known.setdefault(entry.key, _Known())
            known.judged, known.judged_stamp = _judged(reports), stamp
            known.judged_at = self._clock()

    def judge_one(self) -> bool:
        """Judge the recording that needs it most; return whether there was one."""
        listed = self.listed()
        with self._lock:
            found = next((one.entry for one in listed if self._is_due(one)), None)
            if found is None:
                return False
            known = self._known.setdefault(found.key, _Known())
            stamp = found.stamp
            # Before it is judged: what is written meanwhile makes it due again, and one that cannot
            # be read is not tried again until it changes.
            known.judged_stamp, known.judged_at = stamp, self._clock()
        try:
            reports = self._reports_of(found.paths)
        except GradscopeError:
            return True  # the page says why
        self.note(found, stamp, reports)
        return True

    def _is_due(self, one: Listed) -> bool:
        known = self._known.get(one.entry.key)
        if known is None or one.is_large or one.state.kind == "unreadable" or not one.steps:
            return False
        is_changed = known.judged_stamp != one.entry.stamp
        return is_changed and self._clock() - known.judged_at >= _AGAIN

    def _listed(self, entry: Entry) -> Listed:
        known = self._known.setdefault(entry.key, _Known())
        stamp = entry.stamp
        if known.stamp != stamp or not known.overviews:
            known.stamp = stamp
            try:
                known.overviews = tuple(map(read_overview, entry.paths))
                known.error = ""
            except GradscopeError as error:
                known.overviews = ()
                # The list names the folder and where in it the file is.
                known.error = error.what.replace(str(entry.paths[0].parent / "_")[:-1], "")
        judged = known.judged
        losses = known.overviews[0].losses if known.overviews else None
        return Listed(
            entry=entry,
            state=self._state(entry, known),
            steps=max((one.steps for one in known.overviews), default=0),
            losses=losses if judged is None else judged.losses or losses,
            judged=judged,
            is_large=sum(size for _, size in stamp) > _LARGEST,
        )

    def _state(self, entry: Entry, known: _Known) -> RunState:
        """Return the state of a recording; of the ranks of a job, the most telling one."""
        if not known.overviews:
            return RunState(kind="unreadable", text=known.error or "no recording yet")
        now = self._clock()
        states = [state_of(one, entry.written, now) for one in known.overviews]
        order = ("failed", "running", "silent", "ended")
        return min(states, key=lambda state: order.index(state.kind))


def _judged(reports: Sequence[Report]) -> Judged:
    findings = [finding for report in reports for finding in report.findings]
    runs = [one.training_run for one in reports if one.training_run is not None]
    return Judged(
        levels=tuple(one.severity for one in findings),
        losses=_losses(runs[0]) if runs else None,
    )


def _losses(run: TrainingRun) -> LossCourse | None:
    found = {
        span.middle: nan if span.bucket.broken else span.bucket.mean
        for kinds in run.summaries.values()
        for span in kinds.get("loss", ())
    }
    found.update({step.step: step.loss for step in run.steps if step.loss is not None})
    return course_of(found)
