"""What clipping does to the gradients of a target's batches, and who makes their norm."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Self

from gradscope.analysis.clip_arithmetic import Outcome, norm_of, outcome
from gradscope.analysis.clip_sections import MethodRow, Numbers, OptimizerFacts, Section
from gradscope.analysis.clip_series import ClipPoint, call_words
from gradscope.analysis.norms import norm_of_norms
from gradscope.recording.evidence.clip_trial import ClipMethod, ClipPass, ClipTrial
from gradscope.recording.evidence.optimizer import OptimizerRecord
from gradscope.recording.records import Recording

Norms = Mapping[int, float]
"""By parameter, of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What a parameter, or a module with all below it, adds to the global norm."""

    name: str
    share: float
    """Of the squared norm, or of the power that the type of norm has; mean over the steps."""
    largest: float
    """That share in the step in which it is largest."""
    before: float
    """Median of its own norm before clipping."""
    after: float | None
    """The same afterwards; None where that is not known."""
    leads: float
    """Share of the steps in which none has a larger share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """Who makes the global norm, the largest share first."""

    parameters: tuple[Contribution, ...]
    modules: tuple[Contribution, ...]
    """Those below the models: of a list of modules, each for itself."""
    norm_type: float
    """Of the norm whose power is shared out."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        before: Sequence[Norms],
        after: Sequence[Norms],
        norm_type: float = 2.0,
    ) -> Self:
        """Return that of some steps.

        Args:
            recording: That of the parameters.
            before: By step: norms of the type that clipping goes by.
            after: The same after the clip; fewer where that is not known of all.
            norm_type: The type.
        """
        names = {record.index: record.name for record in recording.parameters}
        roots = _roots(recording)
        parts = {index: _part(name, roots) for index, name in names.items()}
        finite = [
            step for step in before if all(map(math.isfinite, step.values())) and any(step.values())
        ]
        left = [step for step in after if all(map(math.isfinite, step.values()))]
        return cls(
            parameters=_contributions(names, finite, left, norm_type),
            modules=_contributions(parts, finite, left, norm_type),
            norm_type=norm_type,
        )

    @property
    def power(self) -> str:
        """What is shared out, in words."""
        return "squared norm" if self.norm_type == 2 else "norm's power"

    @property
    def leader(self) -> Contribution | None:
        """The parameter that alone makes most of the norm; None where none does."""
        first = next(iter(self.parameters), None)
        return (
            first if first is not None and len(self.parameters) > 1 and first.share > 0.5 else None
        )


def _roots(recording: Recording) -> frozenset[str]:
    """Return the names of models, as they begin the names of their parameters in a run."""
    return frozenset(
        record.path for record in recording.modules if record.parent is None and record.path
    )


def _part(name: str, roots: frozenset[str]) -> str:
    """Return the module that a parameter is counted to: `embedding`, `blocks.3`."""
    root = next((root for root in roots if name.startswith(f"{root}.")), "")
    parts = name[len(root) :].strip(".").split(".")[:-1]
    depth = 2 if len(parts) > 1 and parts[1].isdigit() else 1
    return ".".join([*([root] if root else []), *parts[:depth]])


def _contributions(
    names: Mapping[int, str], before: Sequence[Norms], after: Sequence[Norms], norm_type: float
) -> tuple[Contribution, ...]:
    norms = [_joined(names, step, norm_type) for step in before]
    left = [_joined(names, step, norm_type) for step in after]
    shares = [_shares(step, norm_type) for step in norms]
    found = []
    for name in dict.fromkeys(name for step in norms for name in step):
        own = [step.get(name, 0.0) for step in shares]
        kept = [step[name] for step in left if name in step]
        found.append(
            Contribution(
                name=name,
                share=fmean(own),
                largest=max(own),
                before=median(step[name] for step in norms if name in step),
                after=median(kept) if kept else None,
                leads=fmean(step.get(name, 0.0) == max(step.values()) > 0 for step in shares),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.share))


def _joined(names: Mapping[int, str], step: Norms, norm_type: float) -> dict[str, float]:
    """Return the norm of all parameters that have a name together."""
    together: dict[str, list[float]] = {}
    for index, norm in step.items():
        together.setdefault(names[index], []).append(norm)
    return {name: norm_of_norms(norms, norm_type) for name, norms in together.items()}


def _shares(step: Mapping[str, float], norm_type: float) -> dict[str, float]:
    """Return the share of each of the norm's power; of the largest norm all to the largest."""
    largest = max(step.values(), default=0.0)
    if not largest:
        return dict.fromkeys(step, 0.0)
    if math.isinf(norm_type):
        leaders = sum(norm == largest for norm in step.values())
        return {name: (norm == largest) / leaders for name, norm in step.items()}
    powers = {name: (norm / largest) ** norm_type for name, norm in step.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


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
        ClipPoint(step=place, norm=norm_of(one, trial), coefficient=1.0, cosine=None)
        for place, one in enumerate(passes)
    )
    numbers = Numbers.of(unclipped, given=trial.max_norm, by_norm=True, in_order=found.is_training)
    advised = None if numbers.advice is None else numbers.advice.limit
    largest = advised if trial.max_norm is None else trial.max_norm
    own = {"value": trial.value, "adaptive": trial.adaptive_ratio}.get(method, largest)
    outcomes = _outcomes(found, method, largest)
    points = _with_outcomes(unclipped, outcomes)
    clipped = Numbers.of(points, given=None, by_norm=False, in_order=False)
    return Section(
        words=call_words(method, own, trial.norm_type)
        if own is not None
        else recording.target.model,
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
        contributions=_trial_contributions(found, outcomes),
        methods=tuple(_methods(found, largest)),
        checks=(),
        optimizer=_optimizer(recording),
        made=max((one.made for one in passes), default=0),
        obstacle=next((one.obstacle for one in passes if one.obstacle), ""),
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


def _trial_contributions(found: _Trial, outcomes: Sequence[Outcome]) -> Contributions:
    """Return who makes the norm; by parameter, Euclidean norms are told."""
    kind = found.trial.norm_type
    return Contributions.of(
        found.recording,
        [_known(one.powers or one.norms) for one in found.passes],
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
    finite = [one for one in found.passes if math.isfinite(norm_of(one, trial))]
    for method in _METHODS:
        limit = limits[method]
        if limit is None or math.isnan(limit) or not finite:
            continue
        results = [outcome(method, one, trial, limit) for one in finite]
        cosines = [one.cosine for one in results if one.cosine is not None]
        yield MethodRow(
            method=method,
            words=call_words(method, limit, trial.norm_type),
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
