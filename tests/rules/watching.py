"""Watches training loops as `gradscope run` does, in this process."""

import runpy
import warnings
from collections.abc import Callable
from pathlib import Path

from gradscope.capture.training.watch import TrainingWatch
from gradscope.launch.execution import ending_by
from gradscope.recording.finding import Finding
from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by

EVERY = 100
"""After the first steps, every so many steps are captured whole, as by default."""


def findings_of(loop: Callable[[], object], folder: Path) -> tuple[Finding, ...]:
    """Run a training loop, and return what the rules find in it."""
    return judge(recording_of(loop, folder)).findings


def recording_of(loop: Callable[[], object], folder: Path) -> Recording:
    """Run a training loop, and return the recording of it."""
    path = folder / "run.gradscope"
    watch = TrainingWatch(path, "run", make_captures=script_captures_by(Schedule(EVERY)))
    watch.start()
    ending = None
    try:
        loop()
    except Exception as error:
        watch.see_end(error)
        ending = ending_by(error)
        raise
    finally:
        watch.stop(ending)
    return load_recording(path)


def findings_of_script(script: Path, folder: Path) -> tuple[Finding, ...]:
    """Run a training script, and return what the rules find in it."""
    return judge(recording_of_script(script, folder)).findings


def recording_of_script(script: Path, folder: Path) -> Recording:
    """Run a training script, and return the recording of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some of the mistakes too
        return recording_of(lambda: runpy.run_path(str(script), run_name="__main__"), folder)
