"""Sends metrics and findings of a running training to experiment trackers."""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path

from gradscope.analysis.view import shown_site
from gradscope.errors import GradscopeError
from gradscope.export.live.metrics import FINDINGS, LiveMetrics, StepMetrics
from gradscope.export.live.pace import Pace
from gradscope.export.live.sinks import Sink, make_sink
from gradscope.recording.finding import Finding
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings

_BETWEEN_READS, _BETWEEN_JUDGEMENTS = 0.5, 10.0
"""Minimum number of seconds between two reads of the recording, and between two judgements."""


class MetricsLog:
    """Sends what a recording gains to trackers; its own errors end it, and nothing else.

    The trackers are opened after the first step: by then, the script has begun its own run.

    Args:
        path: File of the recording.
        names: Names of trackers, as `check_log` accepts them.
        settings: Settings of the rules.
        tell: Called with the reason why logging has ended early.
    """

    def __init__(
        self, path: Path, names: Sequence[str], settings: Settings, tell: Callable[[str], None]
    ) -> None:
        self._path, self._names, self._settings, self._tell = path, tuple(names), settings, tell
        # A process that is forked from the script has a copy of this object, and must not log.
        self._process, self._turn = os.getpid(), threading.Lock()
        self._metrics = LiveMetrics(path)
        self._reads, self._judgements = Pace(_BETWEEN_READS), Pace(_BETWEEN_JUDGEMENTS)
        self._judgements.postpone()
        self._sinks: dict[str, Sink] = {}
        self._is_open = False
        self._told: set[str] = set()
        self._step = 0
        self._is_on = bool(names)

    def update(self) -> None:
        """Send the metrics of new steps, if it is time for that."""
        if not (self._is_on and self._reads.is_due) or os.getpid() != self._process:
            return
        # A step of another thread must not wait.
        if self._turn.acquire(blocking=False):
            try:
                with self._reads:
                    self._attempt(self._send)
            finally:
                self._turn.release()

    def close(self) -> None:
        """Send the rest and close the trackers. The recording has ended. Further calls do nothing.

        Nothing is sent of a recording without a step.
        """
        if not self._is_on or os.getpid() != self._process:
            return
        if self._path.exists():
            self._attempt(lambda: self._send(is_last=True))
        self._attempt(self._close)
        self._is_on = False

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            with _unnoticed():
                act()
        except Exception as error:  # noqa: BLE001 - it must not end the script
            self._is_on = False
            self._fail("metrics", error)

    def _fail(self, name: str, error: Exception) -> None:
        text = error.what if isinstance(error, GradscopeError) else str(error)
        self._tell(f"logging to {name} stopped: {type(error).__name__}: {text}")

    def _each(self, act: Callable[[Sink], None]) -> None:
        """Call a function for each tracker; one that fails is left out from then on."""
        # A copy: trackers that fail are removed within the loop.
        for name, sink in list(self._sinks.items()):
            try:
                act(sink)
            except Exception as error:  # noqa: BLE001 - it must not end the script
                del self._sinks[name]
                self._fail(name, error)

    def _open(self) -> None:
        for name in self._names:
            try:
                self._sinks[name] = make_sink(name)
            except Exception as error:  # noqa: BLE001 - it must not end the script
                self._fail(name, error)

    def _send(self, *, is_last: bool = False) -> None:
        metrics = self._metrics.read()
        if metrics and not self._is_open:
            self._is_open = True
            self._open()
        for one in metrics:
            self._step = one.step
            self._each(partial(_log, metrics=one))
        if self._sinks and (is_last or self._judgements.is_due):
            with self._judgements:
                self._judge()

    def _judge(self) -> None:
        recording = load_recording(self._path)
        found = judge(recording, self._settings).findings
        self._each(lambda sink: sink.log({FINDINGS: float(len(found))}, self._step))
        for finding in found:
            if finding.fingerprint not in self._told:
                self._told.add(finding.fingerprint)
                self._alert(finding, *alert_texts(finding, recording.target.root))

    def _alert(self, finding: Finding, title: str, text: str) -> None:
        self._each(lambda sink: sink.alert(finding, title, text))

    def _close(self) -> None:
        self._each(lambda sink: sink.close())


def _log(sink: Sink, metrics: StepMetrics) -> None:
    sink.log(metrics.values, metrics.step)


def alert_texts(finding: Finding, root: str) -> tuple[str, str]:
    """Return the title and the text of an alert."""
    text = [finding.message, shown_site(finding.location, root), f"help: {finding.remedy}"]
    return f"{finding.rule} {finding.name}", "\n".join(filter(None, text))


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Restore Python's random state after the block, and keep its output off stdout."""
    # Trackers may draw ids from Python's generator, which the script may have seeded.
    state = random.getstate()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        random.setstate(state)
