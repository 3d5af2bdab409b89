"""Joins the recordings of a training's parts: before and after it was resumed from a checkpoint."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import TypeVar

from gradscope.recording.continued_positions import Positions
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.evidence.ranks import (
    ParameterPlacement,
    RankEvent,
    RankIdentity,
    RankNumbers,
    RankPass,
    WrappedModel,
)
from gradscope.recording.evidence.summaries import CosineSummary, SeriesSummary, StepSummary
from gradscope.recording.evidence.training import (
    ClipScope,
    ContinuedRun,
    RoundedUpdate,
    RunEnding,
    TrainedOptimizer,
    WatchCost,
)
from gradscope.recording.norm_table import NormTable, norms_of
from gradscope.recording.records import Recording
from gradscope.recording.thinning.buckets import COLUMNS

_One = TypeVar("_One")

_OF_LAST_PART = (
    ParameterPlacement,
    RankEvent,
    RankIdentity,
    RankPass,
    RunEnding,
    WrappedModel,
)
"""Evidence that is known of the last part alone: ranks start and end with their process."""


def start_of(recording: Recording) -> int | None:
    """Return the step with which a part goes on; None if it continues nothing."""
    return next((one.step for one in recording.evidence_of(ContinuedRun)), None)


def continued(before: Recording, after: Recording, start: int) -> Recording:
    """Return the recording of a whole training.

    The steps that the first part made behind the checkpoint are left out: the second part makes
    them again. Joining a second time gives the same.

    Args:
        before: The first part.
        after: The second part; its steps count from 0.
        start: Number of optimizer steps made before it, as the trainer counts.
    """
    first = _until(before, start)
    positions = Positions.of(first, after, start)
    return replace(
        after,
        parameters=_merged(
            first.parameters, after.parameters, positions.parameters, positions.parameter
        ),
        modules=_merged(first.modules, after.modules, positions.modules, positions.module),
        sites=_merged(first.sites, after.sites, positions.sites, _same),
        steps=(*first.steps, *map(positions.step, after.steps)),
        events=(*first.events, *map(positions.event, after.events)),
        parameter_stats=_joined_norms(norms_of(first), norms_of(after), positions),
        skipped=tuple(dict.fromkeys((*first.skipped, *after.skipped))),
        evidence=tuple(_evidence(first, after, positions)),
        captured_steps=(
            *first.captured_steps,
            *(positions.captured(one, len(first.captured_steps)) for one in after.captured_steps),
        ),
        stored_gradients=first.stored_gradients,
        kept_batches=(
            *first.kept_batches,
            *(replace(one, step=one.step + start) for one in after.kept_batches),
        ),
        file=before.file,
        untimed=(
            *first.untimed,
            *(range(one.start + start, one.stop + start) for one in after.untimed),
        ),
    )


def _until(recording: Recording, end: int) -> Recording:
    """Return the recording of the steps before one."""
    norms = norms_of(recording)
    # Steps ascend in the table, so that all earlier rows are in front.
    rows = norms.rows_of(end).start
    return replace(
        recording,
        steps=tuple(one for one in recording.steps if one.index < end),
        events=tuple(one for one in recording.events if one.step < end),
        captured_steps=tuple(one for one in recording.captured_steps if one.step < end),
        stored_gradients=tuple(one for one in recording.stored_gradients if one.step < end),
        kept_batches=tuple(one for one in recording.kept_batches if one.step < end),
        parameter_stats=replace(
            norms,
            steps=norms.steps[:rows],
            parameters=norms.parameters[:rows],
            reaches=norms.reaches[:rows],
            gradients=norms.gradients[:rows],
            weights=norms.weights[:rows],
            updates=norms.updates[:rows],
        ),
        evidence=tuple(_evidence_until(recording, end)),
        untimed=tuple(
            range(one.start, min(one.stop, end)) for one in recording.untimed if one.start < end
        ),
    )


def _evidence_until(recording: Recording, end: int) -> Iterator[object]:
    summaries = {one.first: one for one in recording.evidence_of(StepSummary)}
    for one in recording.evidence:
        match one:
            case BatchIdentity() | RoundedUpdate() | RankNumbers() | ContinuedRun():
                if one.step < end:
                    yield one
            case StepSummary() | SeriesSummary() | CosineSummary():
                if one.first < end:
                    yield _summary_until(one, summaries[one.first], end)
            case _ if not isinstance(one, _OF_LAST_PART):
                yield one


def _summary_until(
    one: StepSummary | SeriesSummary | CosineSummary, whole: StepSummary, end: int
) -> object:
    """Return a summary of the steps before one, to the bucket."""
    if end >= whole.first + whole.count or isinstance(one, CosineSummary):
        return one
    if isinstance(one, SeriesSummary):
        # Buckets cannot be divided: the last one may reach beyond the checkpoint.
        size = 8 * ceil((end - one.first) / whole.bucket)
        return replace(one, **{name: getattr(one, name)[:size] for name in COLUMNS})
    # The block may lie entirely behind the checkpoint.
    block = max(0, min(one.block, end - one.block_first))
    return replace(one, count=end - one.first, block=block)


def _evidence(first: Recording, after: Recording, positions: "Positions") -> Iterator[object]:
    optimizers = _merged(
        first.evidence_of(TrainedOptimizer),
        after.evidence_of(TrainedOptimizer),
        positions.optimizers,
        positions.optimizer,
    )
    scopes = _merged(
        first.evidence_of(ClipScope),
        after.evidence_of(ClipScope),
        positions.scopes,
        positions.scope,
    )
    costs = (*first.evidence_of(WatchCost), *after.evidence_of(WatchCost))
    yield from (*optimizers, *scopes, *(costs and (_cost(costs),)))
    listed = (TrainedOptimizer, ClipScope, WatchCost)
    others = (
        *(one for one in first.evidence if not isinstance(one, listed)),
        *(positions.evidence(one) for one in after.evidence if not isinstance(one, listed)),
    )
    # Not a set, which would lose the order of the records.
    yield from dict.fromkeys(others)


def _cost(costs: Sequence[WatchCost]) -> WatchCost:
    # Shares of parts of different length cannot be averaged: this is the time that they are shares
    # of.
    own = sum(one.seconds / one.share for one in costs if one.share)
    return replace(
        costs[-1],
        share=sum(one.seconds for one in costs if one.share) / own if own else None,
        seconds=sum(one.seconds for one in costs),
        steps=sum(one.steps for one in costs),
        measured=sum(one.measured for one in costs),
        captured=sum(one.captured for one in costs),
        repeated=sum(one.repeated for one in costs),
    )


def _joined_norms(first: NormTable, after: NormTable, positions: "Positions") -> NormTable:
    return NormTable(
        steps=array("q", chain(first.steps, map(positions.start.__add__, after.steps))),
        parameters=array(
            "q", chain(first.parameters, map(positions.parameters.__getitem__, after.parameters))
        ),
        reaches=first.reaches + after.reaches,
        gradients=array("d", chain(first.gradients, after.gradients)),
        weights=array("d", chain(first.weights, after.weights)),
        updates=array("d", chain(first.updates, after.updates)),
        numels={
            **first.numels,
            **{positions.parameters[index]: numel for index, numel in after.numels.items()},
        },
    )


def _same(one: _One) -> _One:
    return one


def _merged(
    first: Sequence[_One], after: Sequence[_One], indices: Sequence[int], of: Callable[[_One], _One]
) -> tuple[_One, ...]:
    """Return the records of both parts; those of the second one replace their equals."""
    found = dict(enumerate(first))
    # The second part's are newer: a resumed script may give an optimizer other settings.
    found.update((index, of(one)) for index, one in zip(indices, after, strict=True))
    return tuple(found[index] for index in sorted(found))
