"""Captures every step of training loops, in this process."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

import gradscope
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.records import CapturedStep, Recording
from gradscope.recording.store import load_recording


@dataclass(frozen=True, slots=True)
class CapturedTraining:
    """The recording of a loop."""

    recording: Recording

    @property
    def captured_steps(self) -> tuple[CapturedStep, ...]:
        return self.recording.captured_steps

    @property
    def steps(self) -> list[int]:
        """The steps that were captured."""
        return [captured_step.step for captured_step in self.captured_steps]

    @property
    def reasons(self) -> list[str]:
        """Why some steps were not captured."""
        skipped = self.recording.skipped
        return [one.reason for one in skipped if one.what == "tensors and module calls"]

    @property
    def errors(self) -> list[AutogradErrorRecord]:
        return [
            error
            for captured_step in self.captured_steps
            for error in captured_step.recording.evidence_of(AutogradErrorRecord)
        ]


def norms(captured_step: CapturedStep) -> dict[str, float | None]:
    """Return the norms of the gradients of a captured step's parameters, by name."""
    names = [parameter.name for parameter in captured_step.recording.parameters]
    return {
        names[stat.parameter]: None if stat.gradient is None else stat.gradient.norm
        for stat in captured_step.recording.parameter_stats
    }


def reaches(captured_step: CapturedStep) -> dict[str, str]:
    """Return by name how far backward came to the parameters of a captured step."""
    names = [parameter.name for parameter in captured_step.recording.parameters]
    return {names[stat.parameter]: stat.reach for stat in captured_step.recording.parameter_stats}


@pytest.fixture(name="capture_steps")
def _capture_steps(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., CapturedTraining]]:
    """Run a loop under watch, and return its recording; nothing may end the watch."""

    def capture_steps(loop: Callable[[], object], *, tensor_every: int = 1, raises=None, **options):
        path = tmp_path / "run.gradscope"
        watch = gradscope.watch(save=path, force=True, tensor_every=tensor_every, **options)
        with pytest.raises(raises) if raises else nullcontext(), watch:
            loop()
        assert "recording ended" not in capfd.readouterr().err
        return CapturedTraining(load_recording(path))

    return capture_steps
