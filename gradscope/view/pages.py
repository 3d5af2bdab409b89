"""Renders the pages that are served, once for each state of the recordings."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field, replace
from hashlib import sha256
from threading import Lock

from gradscope.analysis.report import Report
from gradscope.comparison.comparison import compare
from gradscope.comparison.tolerance import Tolerance
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.report.html.comparison_page import render_comparison_html
from gradscope.report.html.library_page import (
    LibraryRow,
    age_text,
    counts_of,
    render_library,
    render_message,
    sparkline,
)
from gradscope.report.html.page import Served
from gradscope.report.html.report_page import render_html
from gradscope.view.catalogue import Catalogue, Entry, Listed, ReportsOf

_KEPT = 6
"""Number of pages that are kept in memory."""

Keys = tuple[str, ...]
"""What is on a page: no key for the list, one for a recording, two for a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A page."""

    text: str
    is_found: bool = True
    """Whether its recordings exist."""


@dataclass(slots=True)
class _Rendered:
    stamp: str = ""
    text: str = ""
    seconds: float = 0.0
    """Seconds of this machine that it took."""
    lock: Lock = field(default_factory=Lock)


class Pages:
    """The list, the page of each recording, and that of each comparison.

    Args:
        catalogue: The recordings.
        reports_of: Reads and judges one of them.
    """

    def __init__(self, catalogue: Catalogue, reports_of: ReportsOf) -> None:
        self.catalogue, self._reports_of = catalogue, reports_of
        self._rendered: OrderedDict[Keys, _Rendered] = OrderedDict()
        self._lock = Lock()

    def stamp(self, keys: Keys) -> str:
        """Return a text that changes with a page."""
        if not keys:
            return _digest([_told(one) for one in self.catalogue.listed()])
        found = [self.catalogue.library.find(key) for key in keys]
        return _digest([entry and (entry.stamp, self.catalogue.of(entry).state) for entry in found])

    def seconds(self, keys: Keys) -> float:
        """Return how many seconds it took to render a page."""
        known = self._rendered.get(keys)
        return 0.0 if known is None else known.seconds

    def page(self, keys: Keys) -> Answer:
        """Return a page; where there is nothing to show, it says why."""
        entries = [self.catalogue.library.find(key) for key in keys]
        known = [entry for entry in entries if entry is not None]
        if len(known) < len(entries):
            served = self._served(keys, known, self.stamp(keys))
            text = "The recording is not there any more: its file was removed or renamed."
            return Answer(text=render_message("not found", text, "", served), is_found=False)
        page = self._slot(keys)
        # One thread renders a page; others that ask for it wait, and get the same text.
        with page.lock:
            stamp = self.stamp(keys)
            if page.stamp != stamp:
                # Of this thread alone: others may render other pages meanwhile.
                began = time.thread_time()
                page.text = self._text(keys, known, self._served(keys, known, stamp))
                page.stamp, page.seconds = stamp, time.thread_time() - began
            return Answer(text=page.text)

    def _slot(self, keys: Keys) -> _Rendered:
        with self._lock:
            page = self._rendered.setdefault(keys, _Rendered())
            self._rendered.move_to_end(keys)
            while len(self._rendered) > _KEPT:
                self._rendered.popitem(last=False)
            return page

    def _served(self, keys: Keys, entries: Sequence[Entry], stamp: str) -> Served:
        base = ("", "../", "../../")[len(keys)]
        states = [self.catalogue.of(entry).state for entry in entries]
        only = states[0] if len(states) == len(keys) == 1 else None
        return Served(
            base=base or "./",
            events="/".join((f"{base}events", *keys)),
            stamp=stamp,
            keys=keys,
            state="" if only is None else only.kind,
            state_text="" if only is None else printable(only.text),
        )

    def _text(self, keys: Keys, entries: Sequence[Entry], served: Served) -> str:
        if not keys:
            folder = str(self.catalogue.library.root)
            now = time.time()
            return render_library(
                [_row(one, now) for one in self.catalogue.listed()], folder, served
            )
        try:
            return self._report(entries, served)
        except GradscopeError as error:
            text = error.what if error.cause is None else f"{error.what}: {error.cause}"
            names = " and ".join(entry.name for entry in entries)
            return render_message(printable(names), printable(text), error.help or "", served)

    def _report(self, entries: Sequence[Entry], served: Served) -> str:
        """Return the page of a recording, or of the comparison of two."""
        judged: list[Sequence[Report]] = []
        for entry in entries:
            is_begun = self.catalogue.of(entry).state.kind in ("running", "silent")
            if not entry.paths or (is_begun and not self.catalogue.of(entry).steps):
                raise GradscopeError("no step is recorded yet", help="This page shows the first.")
            # Before it is read, so that what is written meanwhile is noticed.
            stamp = entry.stamp
            reports = self._reports_of(entry.paths)
            self.catalogue.note(entry, stamp, reports)
            judged.append(reports)
        if len(judged) == 1:
            if served.state == "running":
                judged[0] = [_going_on(report) for report in judged[0]]
            return render_html(judged[0], served)
        sides = [(entry.name, reports[0]) for entry, reports in zip(entries, judged, strict=True)]
        command = f"gradscope compare {' '.join(entry.name for entry in entries)}"
        return render_comparison_html(compare(sides, Tolerance(), command=command), served=served)


def _going_on(report: Report) -> Report:
    """Return the report of a run that goes on, without the remark that it may have been killed."""
    run = report.training_run
    return report if run is None else replace(report, training_run=replace(run, ending=None))


def _told(one: Listed) -> object:
    return one.entry.key, one.entry.name, one.entry.stamp, one.state, one.judged


def _digest(value: object) -> str:
    # Names of files need not be UTF-8.
    return sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _row(one: Listed, now: float) -> LibraryRow:
    judged = one.judged
    verdict = "" if one.state.kind == "unreadable" else "no findings"
    if judged is None and verdict:
        verdict = "open it to judge it" if one.is_large else "not judged yet"
    return LibraryRow(
        key=one.entry.key,
        name=printable(one.entry.name),
        state=one.state.kind,
        state_text=printable(one.state.text),
        steps=f"{one.steps:,}" if one.steps else "",
        curve=sparkline(one.losses),
        counts=counts_of(() if judged is None else judged.levels),
        verdict=verdict,
        written=one.entry.written,
        age=age_text(now - one.entry.written),
    )
