"""Records training loops in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.records import EventRecord, Recording
from gradscope.recording.store import load_recording


@dataclass(frozen=True, slots=True)
class Run:
    """The recording of a loop."""

    recording: Recording

    def events(self, kind: str) -> list[EventRecord]:
        return [event for event in self.recording.events if event.kind == kind]

    def numbers(self, kind: str) -> list[dict[str, float]]:
        return [dict(event.numbers) for event in self.events(kind)]

    def kinds(self, step: int) -> list[str]:
        return [event.kind for event in self.recording.events if event.step == step]

    def line(self, event: EventRecord) -> str:
        return self.recording.sites[event.site].source


@pytest.fixture(name="run")
def _run(tmp_path: Path):
    """Run a loop under watch, and return its recording."""

    def run(loop: Callable[[], object], **options) -> Run:
        path = tmp_path / "run.gradscope"
        path.unlink(missing_ok=True)
        watch = TrainingWatch(path, "gradscope run train.py", **options)
        watch.start()
        try:
            loop()
        finally:
            watch.stop()
        return Run(load_recording(path))

    return run
