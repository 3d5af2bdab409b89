"""What watching costs ten small training scripts: `python tests/benchmarks scripts`.

A single one is named instead of all: `python tests/benchmarks words`.
"""

import itertools
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from training_loops import LOOPS, Loop

from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.evidence.training import WatchCost
from gradscope.recording.store import load_recording
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by

_FIRST = 110
"""Iterations in which things are done once, or more often at first."""

_CHUNK = 0.03
"""Seconds of iterations that are timed together."""

_BLOCK = 1.0
"""Seconds of bare iterations before the watch changes."""

_WHOLE = 10.0
"""Seconds that a run takes by itself whose first steps count, too."""


@dataclass(frozen=True)
class _Pace:
    """How fast a script runs by itself."""

    step: float
    """Seconds."""
    chunk: int
    """Iterations that are timed together."""


def scripts(*loops: Loop) -> None:
    """Print the ratio to the bare iteration of scripts that `gradscope run` watches.

    All is CPU time of the process, the recording's writer included: on average, and of the quarter
    of chunks that took least, as other processes slow a machine down for a while.

    Args:
        loops: The scripts; by default all.
    """
    print(f"\nscripts under watch, budget 5 %; a run of {_WHOLE:.0f} s from its beginning")
    print(
        f"  {'script':<24}{'step':>9} {'ratio':>7} {'quartile':>10} {'whole run':>10}"
        f" {'own share':>10} {'steps':>7} {'measured':>9} {'captured':>9} {'repeated':>9}"
    )
    for loop in loops or LOOPS:
        _print_script(loop)


def _print_script(loop: Loop, turns: int = 5) -> None:
    random.seed(0)
    torch.manual_seed(0)
    iterations = loop()
    pace = _pace(iterations)
    bare, watched = _by_turns(iterations, pace, turns)
    ratio = sum(watched) / len(watched) / (sum(bare) / len(bare))
    quartile = statistics.quantiles(watched)[0] / statistics.quantiles(bare)[0]
    whole, cost = _whole_run(iterations, pace)
    share = "-" if cost.share is None else f"{cost.share:.3f}"
    print(
        f"  {loop.__name__:<24}{statistics.median(bare) * 1e6:>6.0f} us {ratio:>7.3f}"
        f" {quartile:>10.3f} {whole:>10.3f} {share:>10} {cost.steps:>7}"
        f" {cost.measured:>9} {cost.captured:>9} {cost.repeated:>9}",
        flush=True,
    )


def _pace(iterations: Iterator[None]) -> _Pace:
    _seconds(iterations, 20)
    step = min(_seconds(iterations, 20) for _ in range(5))
    return _Pace(step, max(1, round(_CHUNK / step)))


def _by_turns(
    iterations: Iterator[None], pace: _Pace, turns: int
) -> tuple[list[float], list[float]]:
    """Return the seconds an iteration in chunks of bare ones, and of watched ones after the first.

    Those at either end of a block of one kind lie beside those of the other.
    """
    bare, watched = [], []
    chunks = max(5, round(_BLOCK / (pace.step * pace.chunk)))
    for _ in range(turns):
        with _watch():
            _seconds(iterations, _FIRST)
            watched += [_seconds(iterations, pace.chunk) for _ in range(chunks)]
        bare += [_seconds(iterations, pace.chunk) for _ in range(chunks)]
    return bare, watched


def _whole_run(iterations: Iterator[None], pace: _Pace) -> tuple[float, WatchCost]:
    """Return how many times as long a whole run takes under watch, and what it says of itself."""
    chunks = round(_WHOLE / (pace.step * pace.chunk))
    part = round(_BLOCK / (pace.step * pace.chunk)) + 1
    bare = [_seconds(iterations, pace.chunk) for _ in range(part)]
    with _watch() as costs:
        watched = [_seconds(iterations, pace.chunk) for _ in range(chunks)]
    bare += [_seconds(iterations, pace.chunk) for _ in range(part)]
    return statistics.mean(watched) / statistics.median(bare), costs[0]


@contextmanager
def _watch() -> Iterator[list[WatchCost]]:
    """Watch what is done meanwhile as `gradscope run` does; add at the end what that has cost."""
    costs: list[WatchCost] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.gradscope"
        make_captures = script_captures_by(Schedule(None))
        watch = TrainingWatch(path, "benchmark", budget=0.05, make_captures=make_captures)
        watch.start()
        try:
            yield costs
        finally:
            watch.stop()
        costs += load_recording(path).evidence_of(WatchCost)


def _seconds(iterations: Iterator[None], count: int) -> float:
    """Return the CPU time of one of the next iterations on average."""
    start = time.process_time()
    deque(itertools.islice(iterations, count), maxlen=0)
    return (time.process_time() - start) / count
