"""Converts a finished step to records, and writes them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from gradscope.capture.source.statements import sources_around, statements_around
from gradscope.capture.step.stored_gradients import UNREADABLE
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.measurements import Measured, Rounded, StoredEntry
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.training import RoundedUpdate, RunEnding, TrainedOptimizer
from gradscope.recording.records import EventRecord, Reach, Skipped, StepRecord
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.step_norms import NormRow
from gradscope.recording.stored_gradient import StoredGradient


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished step."""

    optimizer: str | None
    """None at the end, for events that led to no step."""
    measured: list[Measured]
    location: int = 0
    """Index of the optimizer."""
    rounded: tuple[Rounded, ...] = ()
    kept: Sequence[StoredEntry] = ()


class StepWriter:
    """Writes steps to the recording."""

    def __init__(self, training: TrainingState, recorder: RunRecorder) -> None:
        self._training, self._recorder = training, recorder
        self.steps = 0
        """Number of steps written."""
        self._skipped: list[Skipped] = []
        self._told: set[Skipped] = set()
        self._functions: tuple[CustomFunctionRecord, ...] = ()

    def skip(self, what: str, reason: str) -> None:
        """Record once what cannot be observed."""
        note = Skipped(what=what, reason=reason)
        if note not in self._told:
            self._told.add(note)
            self._skipped.append(note)

    def continue_at(self, step: int) -> None:
        """Record that the training was resumed, behind a number of optimizer steps."""
        self._recorder.continue_at(step)

    def write(self, finished: Finished) -> None:
        """Write a step with all events since the previous one."""
        self._training.pace.flush()
        # First: events and norms refer to parameters by the index that they get here.
        self._training.take_in()
        modules, parameters = self._training.models.records.take_new()
        is_new = bool(modules) or self.steps == 0
        # Before `take`, which empties the log.
        happened = self._training.event_log.events
        events = self._training.event_log.take(self.steps)
        self._training.pace.recorded(self.steps, happened)
        optimizers = self._optimizers()
        ranks = self._training.ranks.take()
        arguments = self._training.event_log.sites.take_arguments()
        sites = self._training.event_log.sites.take()
        captures = self._training.captures
        if captures is not None and captures.reason is not None:
            self.skip("tensors and module calls", captures.reason)
        kept = self._kept(finished)
        skipped, self._skipped = tuple(self._skipped), []
        self._recorder.add(
            RunStep(
                step=StepRecord(
                    index=self.steps,
                    kind="run",
                    graph=None,
                    loss=_loss(events),
                    optimizer=finished.optimizer,
                ),
                events=events,
                norms=_norms(finished.measured),
                parameters=parameters,
                modules=modules,
                sites=sites,
                sources=tuple(sources_around(sites)),
                statements=tuple(statements_around(sites)),
                optimizers=optimizers,
                library_calls=self._training.event_log.sites.take_calls(),
                trainer_arguments=arguments,
                scopes=self._training.scopes.take(),
                rounded=tuple(_rounded(self.steps, finished)),
                skipped=skipped,
                captured_steps=() if captures is None else captures.take(self.steps),
                stored_gradients=kept,
                ranks=ranks.records,
                rank_events=ranks.events,
            )
        )
        self.steps += 1
        if is_new:
            self._describe()

    def note_functions(self, records: Sequence[CustomFunctionRecord]) -> None:
        """Record what the checks of the script's custom functions found."""
        for one in records:
            if one.outcome == "unchecked":
                self.skip(
                    f"the backward of {one.name} against finite differences", one.reason or ""
                )
        self._functions = tuple(records)

    def flush_ranks(self) -> None:
        """Write what was recorded of the ranks since the last step."""
        ranks = self._training.ranks.take()
        sites = self._training.event_log.sites.take()
        if not (ranks.records or ranks.events):
            return
        self._recorder.add(
            RunStep(
                sites=sites,
                sources=tuple(sources_around(sites)),
                statements=tuple(statements_around(sites)),
                ranks=ranks.records,
                rank_events=ranks.events,
            )
        )

    def _kept(self, finished: Finished) -> tuple[StoredGradient, ...]:
        """Return the records of the stored gradients, in the order of the parameters."""
        known = [(entry.index, one) for entry, one in finished.kept if entry.index is not None]
        if unreadable := sum(one is None for _, one in known):
            self.skip(f"the elements of {counted(unreadable, 'gradient')}", UNREADABLE)
        found = (one.of(self.steps, index) for index, one in known if one is not None)
        return tuple(sorted(found, key=lambda one: one.parameter))

    def finish(self, ending: RunEnding | None, left: list[Measured]) -> None:
        """Write the events that led to no step, and close the recording.

        Args:
            ending: The end of the run.
            left: Gradients that backward left, if there was no step.
        """
        self._training.ranks.finish()
        if self._training.event_log.events or self._training.has_captured_step:
            self.write(Finished(None, left))
        if self._skipped or self._functions:
            sites = self._training.event_log.sites.take()
            self._recorder.add(
                RunStep(
                    sites=sites,
                    sources=tuple(sources_around(sites)),
                    statements=tuple(statements_around(sites)),
                    skipped=tuple(self._skipped),
                    functions=self._functions,
                )
            )
        self.flush_ranks()
        self._training.pace.flush()
        self._recorder.close(ending, self._training.pace.cost())

    def abandon(self, reason: str) -> None:
        """Close the recording of a run that continues."""
        with suppress(GradscopeError):  # the disk may be full
            self._training.pace.flush()
        self._recorder.abandon(RunEnding(kind="lost", message=reason), self._training.pace.cost())

    def _optimizers(self) -> tuple[tuple[int, TrainedOptimizer], ...]:
        site = self._training.event_log.sites.index
        return tuple(
            (one.index, one.record(site))
            for one in self._training.optimizers.known
            if one.is_changed
        )

    def _describe(self) -> None:
        names = (one.class_name for one in self._training.optimizers.known)
        self._recorder.describe(
            model=self._training.models.described,
            batch=self._training.batch,
            optimizer=", ".join(dict.fromkeys(names)) or None,
        )


def _loss(events: tuple[EventRecord, ...]) -> float | None:
    values = [dict(event.numbers).get("loss") for event in events if event.kind == "backward"]
    return values[-1] if values else None


def _norms(measured: list[Measured]) -> list[NormRow]:
    return [
        (one.entry.index, _reach(one), one.gradient, one.weight, one.update)
        for one in measured
        if one.entry.index is not None
    ]


def _rounded(step: int, finished: Finished) -> Iterator[RoundedUpdate]:
    for one in finished.rounded:
        if one.entry.index is not None:
            yield RoundedUpdate(
                step=step,
                optimizer=finished.location,
                parameter=one.entry.index,
                moving=one.moving,
                unchanged=one.unchanged,
            )


def _reach(one: Measured) -> Reach:
    if one.gradient is None:
        return "none" if one.requires_grad else "frozen"
    if one.gradient == 0:
        return "zero" if one.requires_grad else "frozen"
    return "gradient"
