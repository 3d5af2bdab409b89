"""The clipping of a recording: of a target's batches, or of a training run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Self

from gradscope.analysis.clipping.arithmetic import Outcome, norm_of, outcome
from gradscope.analysis.clipping.run import run_sections
from gradscope.analysis.clipping.sections import (
    Contributions,
    MethodRow,
    Numbers,
    OptimizerFacts,
    Section,
)
from gradscope.analysis.clipping.series import ClipPoint, call_text
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import ClipMethod, ClipPass, ClipTrial, OptimizerRecord
from gradscope.recording.records import Recording

_METHODS: tuple[ClipMethod, ...] = ("norm", "per-tensor", "value", "adaptive")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The records of a target's gradients."""

    recording: Recording
    trial: ClipTrial
    passes: tuple[ClipPass, ...]

    @property
    def is_training(self) -> bool:
        """Whether they were made by a model in training, one after another."""
        return len({one.made for one in self.passes}) > 1


def trial_section(recording: Recording, trial: ClipTrial) -> Section:
    """Return what clipping does to the gradients that were measured."""
    passes = recording.evidence_of(ClipPass)
    found = _Trial(recording=recording, trial=trial, passes=passes)
    method: ClipMethod = next(iter(trial.asked), "norm")
    is_by_norm = method in ("norm", "per-tensor")
    unclipped = tuple(
        ClipPoint(step=position, norm=norm_of(one, trial), coefficient=1.0, cosine=None)
        for position, one in enumerate(passes)
    )
    # The advice needs the norms alone, and the outcomes need the advice: hence two passes.
    numbers = Numbers.of(unclipped, given=trial.max_norm, by_norm=True, in_order=found.is_training)
    advised = None if numbers.advice is None else numbers.advice.limit
    largest = advised if trial.max_norm is None else trial.max_norm
    own = {"value": trial.value, "adaptive": trial.adaptive_ratio}.get(method, largest)
    outcomes = _outcomes(found, method, largest)
    points = _with_outcomes(unclipped, outcomes)
    clipped = Numbers.of(points, given=None, by_norm=False, in_order=False)
    return Section(
        text=call_text(method, own, trial.norm_type) if own is not None else recording.target.model,
        site=None,
        method=method if own is not None else None,
        limit=own,
        limits=None,
        norm_type=trial.norm_type,
        is_advised=is_by_norm and trial.max_norm is None and own is not None,
        points=points,
        norms=numbers.norms,
        bins=numbers.bins,
        coefficients=clipped.coefficients,
        cosines=clipped.cosines,
        advice=numbers.advice,
        sweep=numbers.sweep,
        contributions=_contributions(found, outcomes),
        methods=tuple(_methods(found, largest)),
        checks=(),
        optimizer=_optimizer(recording),
        made=max((one.made for one in passes), default=0),
        failure=next((one.failure for one in passes if one.failure), ""),
    )


def _outcomes(found: _Trial, method: ClipMethod, largest: float | None) -> Sequence[Outcome]:
    if largest is None and method in ("norm", "per-tensor"):
        return ()
    return [outcome(method, one, found.trial, largest) for one in found.passes]


def _with_outcomes(
    points: tuple[ClipPoint, ...], outcomes: Sequence[Outcome]
) -> tuple[ClipPoint, ...]:
    if not outcomes:
        return points
    return tuple(
        replace(point, coefficient=one.coefficient, cosine=one.cosine)
        for point, one in zip(points, outcomes, strict=True)
    )


def _contributions(found: _Trial, outcomes: Sequence[Outcome]) -> Contributions:
    """Return the contributions to the norm by parameter; they are for Euclidean norms."""
    kind = found.trial.norm_type
    return Contributions.of(
        found.recording,
        [_known(one.powers or one.norms) for one in found.passes],
        # Outcomes have Euclidean norms, which do not add up to a norm of another type.
        [_known(one.norms) for one in outcomes] if kind == 2 else (),
        kind,
    )


def _known(norms: Sequence[float | None]) -> dict[int, float]:
    return {index: norm for index, norm in enumerate(norms) if norm is not None}


def _methods(found: _Trial, largest: float | None) -> Iterator[MethodRow]:
    trial = found.trial
    limits: dict[ClipMethod, float | None] = {
        "norm": largest,
        "per-tensor": largest,
        "value": trial.value,
        "adaptive": trial.adaptive_ratio,
    }
    # One infinite norm would make every mean infinite.
    finite = [one for one in found.passes if math.isfinite(norm_of(one, trial))]
    for method in _METHODS:
        limit = limits[method]
        if limit is None or math.isnan(limit) or not finite:
            continue
        results = [outcome(method, one, trial, limit) for one in finite]
        cosines = [one.cosine for one in results if one.cosine is not None]
        yield MethodRow(
            method=method,
            text=call_text(method, limit, trial.norm_type),
            limit=limit,
            is_asked=method in trial.asked,
            share=fmean(one.is_cut for one in results),
            after=median(one.norm for one in results),
            coefficient=fmean(one.coefficient for one in results),
            cosine=median(cosines) if cosines else None,
            worst=min(cosines, default=None),
        )


def _optimizer(recording: Recording) -> OptimizerFacts:
    """Return the target's optimizer; without one, the Adam that made the steps."""
    for record in recording.evidence_of(OptimizerRecord):
        if record.is_targets:
            rates = [g.learning_rate for g in record.groups if g.learning_rate is not None]
            return OptimizerFacts(
                title=recording.target.optimizer or record.class_name,
                family=record.family,
                rate=rates[0] if rates else None,
            )
    made = next((step.optimizer for step in recording.steps if step.optimizer), "")
    return OptimizerFacts(title=made, family="adaptive", rate=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """What clipping does, or would do."""

    trial: ClipTrial | None
    """Method by which a target's gradients were measured; None for a run."""
    sections: tuple[Section, ...]
    """Sections of a run: one per line that clips, or one per optimizer if nothing clips."""

    @classmethod
    def of(cls, recording: Recording) -> Self | None:
        """Return the clipping of a recording; None without facts on clipping."""
        for trial in recording.evidence_of(ClipTrial):
            return cls(trial=trial, sections=(trial_section(recording, trial),))
        sections = run_sections(recording)
        return cls(trial=None, sections=sections) if sections else None

    @classmethod
    def expected_of(cls, recording: Recording) -> Self:
        """Return the clipping of a recording that must have it.

        Raises:
            GradscopeError: It tells nothing of it.
        """
        clipping = cls.of(recording)
        if clipping is None:
            name = recording.target.name
            raise GradscopeError(
                f"the recording of {name} has no clip call, and no steps to measure one",
                help="use gradscope clip-report TARGET, or record a script with gradscope run",
            )
        return clipping
