"""Steps of a run that repeat earlier ones: the same calls, or the same graph, modules and lines."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan, nan

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.forward import (
    ComparisonRecord,
    LoneNormalisationRecord,
    SoftmaxRecord,
)
from gradscope.recording.evidence.parameters import (
    AttributeRecord,
    CallerRecord,
    CastRecord,
    DroppedRecord,
    FreezeRecord,
    InitialisationRecord,
    LeafRecord,
    PartlyUnfrozenRecord,
    ReplacementRecord,
    UncalledUpdateRecord,
    UnreadModuleRecord,
)
from gradscope.recording.evidence.training import OptimizerRecord, SourceRecord, StatementRecord
from gradscope.recording.records import CapturedStep, EventRecord, Recording, StepRecord

MEASURED: Mapping[str, frozenset[str]] = {
    "backward": frozenset({"loss", "nodes", "older", "root", "rows", "scale", "tokens"}),
    "clip-norm": frozenset({"norm"}),
    "clip-value": frozenset({"norm", "norm_after", "cosine"}),
    "scaler-update": frozenset({"scale_before", "scale_after"}),
    "scheduler": frozenset({"lr_before", "lr_after"}),
    "step": frozenset({"norm", "nonfinite", "lr"}),
    "unscale": frozenset({"scale"}),
}
"""Measured numbers of events, by kind, which repeated steps need not share."""

_OBSERVED = frozenset({"carried", "kept", "mode"})
"""Kinds of events that are observed only in steps recorded in full."""


def is_shared(kind: str, number: str) -> bool:
    """Return whether a repeated step has the same number in an event of a kind."""
    return number not in MEASURED.get(kind, frozenset())


def is_repeated(kind: str) -> bool:
    """Return whether a repeated step has the events of a kind, too."""
    return kind not in _OBSERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedSteps:
    """Consecutive steps, each with the same calls in the same order as an earlier step."""

    first: int
    """Index of the first step."""
    sources: tuple[int, ...]
    """Indices of the repeated steps, each once."""
    choices: bytes
    """By step: which of the sources it repeats, as an index in two bytes."""
    losses: bytes
    """Loss of every backward whose source has a loss, in order, in float64; NaN if not read."""
    rates: bytes
    """By step: learning rate of the first group, in float64; NaN if unknown."""
    began: float
    """Seconds from the start of the recording to the end of the step before the first."""
    ended: float

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.choices) // 2


@dataclass(slots=True)
class _Source:
    """A step that others repeat."""

    step: StepRecord
    events: list[EventRecord]
    began: float
    """Seconds from the start of the recording to its first event."""


class Sources:
    """The steps that others may repeat, with their events."""

    def __init__(self, steps: Iterable[StepRecord], events: Iterable[EventRecord]) -> None:
        self._steps = {step.index: step for step in steps}
        self._events: dict[int, list[EventRecord]] = {}
        for event in events:
            self._events.setdefault(event.step, []).append(event)

    def of(self, index: int) -> _Source:
        """Return the shared form of a step."""
        events = [event for event in self._events.get(index, ()) if is_repeated(event.kind)]
        shared = [replace(event, numbers=tuple(_shared(event))) for event in events]
        began = events[0].seconds if events else 0.0
        return _Source(self._steps[index], shared, began)


def _shared(event: EventRecord) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an event that repeated steps share."""
    for name, value in event.numbers:
        # A loss marks that the losses of repeated steps were read.
        if is_shared(event.kind, name) or (event.kind == "backward" and name == "loss"):
            yield name, value
        elif event.kind == "backward" and name == "rows":
            yield "forward", 1.0  # there was one, of an unknown batch


def unfolded(
    one: RepeatedSteps, sources: Sources
) -> Iterator[tuple[StepRecord, list[EventRecord]]]:
    """Yield repeated steps with their events; numbers that were not measured are omitted."""
    # Once for each source: thousands of steps repeat the same few.
    known = [sources.of(index) for index in one.sources]
    # An iterator for all steps, because their numbers of losses differ.
    choices, losses = array("H", one.choices), iter(array("d", one.losses))
    duration = (one.ended - one.began) / max(len(choices), 1)
    for order, (choice, rate) in enumerate(zip(choices, array("d", one.rates), strict=True)):
        source = known[choice]
        index, began = one.first + order, one.began + order * duration
        events = list(_events(source, index, began, duration, losses, rate))
        yield _step(source.step, index, events), events


def _events(
    source: _Source,
    index: int,
    began: float,
    duration: float,
    losses: Iterator[float],
    rate: float,
) -> Iterator[EventRecord]:
    for order, event in enumerate(source.events):
        numbers = event.numbers
        if event.kind == "backward" and any(name == "loss" for name, _ in numbers):
            loss = next(losses, nan)
            rest = tuple(number for number in numbers if number[0] != "loss")
            numbers = rest if isnan(loss) else (*rest, ("loss", loss))
        elif event.kind == "step" and not isnan(rate):
            numbers = (*numbers, ("lr", rate))
        # The calls of repeated steps are not timed.
        seconds = began + duration * (order + 1) / len(source.events)
        yield EventRecord(
            step=index,
            order=order,
            kind=event.kind,
            seconds=seconds,
            site=event.site,
            numbers=numbers,
            optimizer=event.optimizer,
            subject=event.subject,
        )


def _step(source: StepRecord, index: int, events: Sequence[EventRecord]) -> StepRecord:
    losses = [dict(event.numbers).get("loss") for event in events if event.kind == "backward"]
    return replace(source, index=index, loss=losses[-1] if losses else None)


def with_repeated(
    steps: tuple[StepRecord, ...],
    events: tuple[EventRecord, ...],
    repeated: Sequence[RepeatedSteps],
) -> tuple[tuple[StepRecord, ...], tuple[EventRecord, ...]]:
    """Return all steps and events of a run, with repeated steps at their positions."""
    if not repeated:
        return steps, events
    sources = Sources(steps, events)
    by_step = {step.index: step for step in steps}
    of_step: dict[int, list[EventRecord]] = {}
    for event in events:
        of_step.setdefault(event.step, []).append(event)
    for one in repeated:
        for step, own in unfolded(one, sources):
            by_step[step.index], of_step[step.index] = step, own
    return (
        tuple(by_step[index] for index in sorted(by_step)),
        tuple(event for index in sorted(of_step) for event in of_step[index]),
    )


NOT_IN_EVERY_STEP = "not in every captured step"
"""Why a captured step lacks measurements that other captured steps have."""

_OF_STRUCTURE = frozenset(
    {
        AttributeRecord,
        CallerRecord,
        ComparisonRecord,
        DroppedRecord,
        CastRecord,
        FreezeRecord,
        PartlyUnfrozenRecord,
        InitialisationRecord,
        LeafRecord,
        LoneNormalisationRecord,
        OptimizerRecord,
        ReplacementRecord,
        SoftmaxRecord,
        SourceRecord,
        StatementRecord,
        UncalledUpdateRecord,
        UnreadModuleRecord,
    }
)
"""Evidence that depends only on graph, modules and lines."""

_OF_NUMBERS = frozenset({"forward", "half precision", "symmetry", "twins"})
"""Probes that read elements of tensors."""

_NONFINITE = "non-finite"
"""Finds nothing if everything is finite, as in a captured step that repeats another."""


def repeated(known: Recording, own: Recording) -> Recording:
    """Return a captured step with its own statistics and the structure of an earlier one.

    Args:
        known: The earlier captured step.
        own: Header, steps and statistics, and the evidence that replaces the earlier one's.
    """
    kinds = {type(record) for record in own.evidence}
    # A kind that the step has measured itself replaces all records of that kind.
    shared = (one for one in known.evidence if type(one) in _OF_STRUCTURE - kinds)
    return replace(
        own,
        parameters=known.parameters,
        modules=known.modules,
        calls=known.calls,
        sites=known.sites,
        nodes=known.nodes,
        edges=known.edges,
        cuts=known.cuts,
        skipped=known.skipped,
        evidence=(*own.evidence, *shared, *_probe_records(known)),
    )


def own_part(captured: CapturedStep) -> Recording:
    """Return the part of a captured step that it does not repeat; all of it if it repeats none."""
    if captured.same_as is None:
        return captured.recording
    return replace(
        captured.recording,
        parameters=(),
        modules=(),
        calls=(),
        sites=(),
        nodes=(),
        edges=(),
        cuts=(),
        skipped=(),
        evidence=captured.own_evidence,
    )


def _probe_records(known: Recording) -> Iterator[ProbeRecord]:
    for record in known.evidence_of(ProbeRecord):
        # Those that could not run in the first step could not run here, either.
        if record.name in _OF_NUMBERS and record.skip_reason is None:
            yield replace(record, skip_reason=NOT_IN_EVERY_STEP)
        elif record.name == _NONFINITE:
            yield replace(record, skip_reason=None)
        else:
            yield record
