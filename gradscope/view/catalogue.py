"""Finds the served recordings, and what the list says of each; reads only files that changed."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from datetime import datetime
from hashlib import sha256
from math import nan
from pathlib import Path
from threading import Lock
from typing import Literal

from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun, ending_text
from gradscope.comparison.side import rank_of_file
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.finding import Severity
from gradscope.recording.overview import LossCourse, Overview, course_of, read_overview

SUFFIX = ".gradscope"

_UNSEEN = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders that are not searched, like those with a name that begins with a dot."""

_LEAST, _SHARE = 0.5, 0.05
"""Seconds between two searches at least, and the largest share of the time for them."""

Stamp = tuple[tuple[int, int], ...]
"""Time and size of the files of a recording: it is unchanged as long as these are."""


StateKind = Literal["running", "silent", "ended", "failed", "unreadable"]

_PATIENCE, _STEPS = 10.0, 20
"""Seconds without a write, and duration of so many steps, after which a run counts as silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A recording, or those of the ranks of one job."""

    key: str
    """Its name in addresses."""
    name: str
    """Its path below the folder; of several ranks the name that they share."""
    paths: tuple[Path, ...]
    """Its files, by rank; empty if there is none, or none yet."""

    @property
    def stamp(self) -> Stamp:
        """Time and size of its files, and of their logs. A missing file is `(0, 0)`."""
        # SQLite writes to its log first: the file itself stays the same for long.
        logs = (path.with_name(f"{path.name}-wal") for path in self.paths)
        return tuple(_stat(path) for path in (*self.paths, *logs))

    @property
    def written(self) -> float:
        """When it was last written, in seconds since the epoch."""
        return max((time for time, _ in self.stamp), default=0) / 1e9


def _stat(path: Path) -> tuple[int, int]:
    try:
        # A file may be removed between its listing and this call.
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


class Library:
    """The recordings of some folders and files.

    Args:
        given: Folders, whose subfolders are searched too, and files, which need not exist yet.
    """

    def __init__(self, given: Sequence[Path]) -> None:
        self._given = tuple(path.absolute() for path in given)
        folders = [one if one.is_dir() else one.parent for one in self._given]
        self.root = Path(os.path.commonpath(folders))
        """Folder from which names are shown."""
        is_file = len(self._given) == 1 and not self._given[0].is_dir()
        self.single = self._key(_joined(self._given[0])) if is_file else None
        """Key of the only recording; None if there may be several."""
        self._lock = Lock()
        self._entries: list[Entry] = []
        self._next = 0.0

    def scan(self) -> tuple[Entry, ...]:
        """Return all recordings, the last written first."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                self._entries = self._searched()
                now = time.monotonic()
                self._next = now + max(_LEAST, (now - began) / _SHARE)
            entries = self._entries
        return tuple(sorted(entries, key=lambda one: (-one.written, one.name)))

    def _searched(self) -> list[Entry]:
        groups: dict[Path, list[tuple[int, Path]]] = {}
        for path in self._files():
            rank = rank_of_file(path.name)
            groups.setdefault(_joined(path), []).append((-1 if rank is None else rank[1], path))
        return [
            Entry(key=self._key(joined), name=self._shown(joined), paths=_in_order(files))
            for joined, files in groups.items()
        ]

    def find(self, key: str) -> Entry | None:
        """Return the recording of a key; None if there is none."""
        known = next((one for one in self.scan() if one.key == key), None)
        if known is None and key == self.single:
            joined = _joined(self._given[0])
            return Entry(key=key, name=self._shown(joined), paths=())
        return known

    def _files(self) -> Iterator[Path]:
        files = (
            file for one in self._given for file in (_below(one) if one.is_dir() else _of(one))
        )
        return iter(dict.fromkeys(files))

    def _shown(self, path: Path) -> str:
        # Names of files need not be UTF-8, but pages are.
        return os.fsencode(path.relative_to(self.root)).decode("utf-8", "replace")

    @staticmethod
    def _key(joined: Path) -> str:
        return sha256(os.fsencode(joined)).hexdigest()[:16]


def _below(folder: Path) -> Iterator[Path]:
    """Yield the recordings in a folder and below it; links to folders are not followed."""
    for place, folders, files in os.walk(folder):
        # `os.walk` descends by this list: only a change in place leaves folders out.
        folders[:] = [one for one in folders if not one.startswith(".") and one not in _UNSEEN]
        yield from (Path(place, one) for one in files if _is_recording(one))


def _of(file: Path) -> Iterator[Path]:
    """Yield a file, and the ranks of the job that it names."""
    if file.exists():
        yield file
    if rank_of_file(file.name) is None and file.parent.is_dir():
        siblings = (one for one in file.parent.iterdir() if _is_recording(one.name))
        yield from (one for one in siblings if one != file and _joined(one) == file)


def _is_recording(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _joined(path: Path) -> Path:
    """Return the common name of the ranks of a job; a path that is not of a rank as it is."""
    rank = rank_of_file(path.name)
    return path if rank is None else path.with_name(f"{rank[0]}{SUFFIX}")


def _in_order(files: Iterable[tuple[int, Path]]) -> tuple[Path, ...]:
    return tuple(path for _, path in sorted(files))


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
