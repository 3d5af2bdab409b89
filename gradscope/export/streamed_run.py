"""The steps of a run in its file, described as those of a run in memory, one after the other."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from gradscope.analysis.loop_windows import LoopWindow, windows_of
from gradscope.analysis.losses import Divisions
from gradscope.analysis.run_optimizers import OptimizerRow, Optimizers
from gradscope.analysis.training_run import RunStep, run_steps
from gradscope.frozen import dataclass
from gradscope.recording.events import event_of
from gradscope.recording.norm_table import REACHES, NormTable
from gradscope.recording.records import Reach, Recording
from gradscope.recording.streaming import RunInFile


class _NormsAhead:
    """The norms of steps that are asked for in their order."""

    def __init__(self, run: RunInFile) -> None:
        # Steps come in order: of the tables of norms, which are large, memory holds one.
        self._tables = run.norms()
        self._table = NormTable.of_rows([], run.numels)

    def at(self, step: int) -> NormTable:
        """Return a table with the norms of a step."""
        while not self._table.steps or self._table.steps[-1] < step:
            following = next(self._tables, None)
            if following is None:
                break
            self._table = following
        return self._table


@dataclass(frozen=True, slots=True)
class StreamedRun:
    """A run in its file whose optimizers and divisions of losses are known."""

    run: RunInFile
    optimizers: Optimizers
    divisions: Divisions

    @classmethod
    def of(cls, run: RunInFile) -> "StreamedRun":
        """Read the run once."""
        divisions = Divisions()
        return cls(run, Optimizers(run.structure, divisions.noted(_windows(run))), divisions)

    @property
    def rows(self) -> tuple[OptimizerRow, ...]:
        """The optimizers."""
        return self.optimizers.rows

    def steps(self) -> Iterator[tuple[RunStep, NormTable]]:
        """Yield the steps, each with a table of its norms."""
        norms = _NormsAhead(self.run)
        found = run_steps(_windows(self.run), self.optimizers, self.divisions.loss_of, norms.at)
        return ((step, norms.at(step.step)) for step in found)


def _windows(run: RunInFile) -> Iterator[LoopWindow]:
    positions = count()
    return windows_of(
        (step, [event_of(event, next(positions)) for event in events])
        for step, events in run.steps()
        if step is not None
    )


def at_its_end(run: RunInFile) -> Recording:
    """Return a recording of the last step alone, with the last norms of each parameter."""
    steps = (step for step, _ in run.steps() if step is not None)
    stepped = deque((step for step in steps if step.optimizer is not None), maxlen=1)
    number = stepped[0].index if stepped else 0
    latest: dict[int, tuple[int, int, Reach, float, float, float]] = {}
    for table in run.norms():
        columns = zip(
            table.parameters,
            table.reaches,
            table.gradients,
            table.weights,
            table.updates,
            strict=True,
        )
        for parameter, reach, *norms in columns:
            gradient, weight, update = norms
            latest[parameter] = (number, parameter, REACHES[reach], gradient, weight, update)
    rows = [list(latest.values())] if latest else []
    stats = NormTable.of_rows(rows, run.numels)
    return replace(run.structure, steps=tuple(stepped), parameter_stats=stats)
