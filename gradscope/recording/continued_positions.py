"""Where the records of a resumed training's second part belong in the whole recording."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.ranks import (
    ParameterPlacement,
    RankEvent,
    RankNumbers,
    RankPass,
    WrappedModel,
)
from gradscope.recording.evidence.summaries import CosineSummary, SeriesSummary, StepSummary
from gradscope.recording.evidence.training import (
    ClipScope,
    LibraryCall,
    RoundedUpdate,
    TrainedOptimizer,
    TrainerArgument,
)
from gradscope.recording.records import (
    CapturedStep,
    EventRecord,
    ModuleRecord,
    ParameterRecord,
    Recording,
    StepRecord,
)
from gradscope.recording.thinning.buckets import COLUMNS, packed, unpacked

_One = TypeVar("_One")


def _matched(
    first: Sequence[_One], after: Sequence[_One], key: Callable[[_One], Hashable]
) -> tuple[int, ...]:
    """Return the index of each record of the second part among those of both.

    Of several records with the same key, the first ones are the same, the second ones, and so on.
    """
    free: dict[Hashable, list[int]] = {}
    for index, one in enumerate(first):
        free.setdefault(key(one), []).append(index)
    # What only the second part has comes behind, so that indices in the first one stay valid.
    following = iter(range(len(first), len(first) + len(after)))
    return tuple(own.pop(0) if (own := free.get(key(one))) else next(following) for one in after)


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Where the second part's records are in the whole recording, by their own index."""

    start: int
    seconds: float
    """Seconds from the start of the recording to the second part."""
    parameters: tuple[int, ...]
    modules: tuple[int, ...]
    sites: tuple[int, ...]
    optimizers: tuple[int, ...]
    scopes: tuple[int, ...]

    @classmethod
    def of(cls, first: Recording, after: Recording, start: int) -> "Positions":
        """Return the positions behind a first part."""
        parameters = _matched(first.parameters, after.parameters, lambda one: (one.name, one.shape))
        # By the whole recording's indices, because they are compared with the first part's sets.
        scopes = (
            replace(one, parameters=tuple(parameters[index] for index in one.parameters))
            for one in after.evidence_of(ClipScope)
        )
        return cls(
            start=start,
            # The pause between the parts is left out: nothing was trained in it.
            seconds=first.events[-1].seconds if first.events else 0.0,
            parameters=parameters,
            modules=_matched(
                first.modules, after.modules, lambda one: (one.path, one.class_name, one.in_model)
            ),
            sites=_matched(first.sites, after.sites, lambda one: one),
            optimizers=_matched(
                first.evidence_of(TrainedOptimizer),
                after.evidence_of(TrainedOptimizer),
                lambda one: (one.class_name, one.name),
            ),
            scopes=_matched(first.evidence_of(ClipScope), tuple(scopes), lambda one: one),
        )

    def parameter(self, one: ParameterRecord) -> ParameterRecord:
        """Return a parameter with its new indices."""
        return replace(
            one,
            index=self.parameters[one.index],
            module=self.modules[one.module],
            site=self._site(one.site),
        )

    def module(self, one: ModuleRecord) -> ModuleRecord:
        """Return a module with its new indices."""
        parent = None if one.parent is None else self.modules[one.parent]
        return replace(one, index=self.modules[one.index], parent=parent, site=self._site(one.site))

    def step(self, one: StepRecord) -> StepRecord:
        """Return a step at its position."""
        return replace(one, index=one.index + self.start)

    def event(self, one: EventRecord) -> EventRecord:
        """Return an event at its position."""
        return replace(
            one,
            step=one.step + self.start,
            seconds=one.seconds + self.seconds,
            site=self._site(one.site),
            optimizer=self._optimizer(one.optimizer),
            numbers=tuple(
                (name, float(self.scopes[int(value)]) if name == "scope" else value)
                for name, value in one.numbers
            ),
        )

    def captured(self, one: CapturedStep, before: int) -> CapturedStep:
        """Return a captured step at its position, behind a number of others."""
        same_as = None if one.same_as is None else one.same_as + before
        return replace(one, step=one.step + self.start, same_as=same_as)

    def optimizer(self, one: TrainedOptimizer) -> TrainedOptimizer:
        """Return an optimizer with its new indices."""
        return replace(
            one,
            site=self._site(one.site),
            parameters=tuple(self.parameters[index] for index in one.parameters),
            replaced=self._optimizer(one.replaced),
            joined=self._optimizer(one.joined),
            rested=self._site(one.rested),
            rate_function=self._site(one.rate_function),
            plateau_site=self._site(one.plateau_site),
            schedule_site=self._site(one.schedule_site),
            undecayed=tuple(self.parameters[index] for index in one.undecayed),
            name_filters=tuple((word, self.sites[site]) for word, site in one.name_filters),
        )

    def scope(self, one: ClipScope) -> ClipScope:
        """Return a set of parameters with its new indices."""
        return replace(one, parameters=tuple(self.parameters[index] for index in one.parameters))

    def evidence(self, one: object) -> object:
        """Return evidence with its new indices, at its position."""
        match one:
            case LibraryCall():
                return replace(one, site=self.sites[one.site], caller=self.sites[one.caller])
            case TrainerArgument():
                return replace(one, site=self.sites[one.site])
            case CustomFunctionRecord():
                applied, backward = self._site(one.applied), self._site(one.backward)
                return replace(one, applied=applied, backward=backward)
            case RoundedUpdate():
                return replace(
                    one,
                    step=one.step + self.start,
                    optimizer=self.optimizers[one.optimizer],
                    parameter=self.parameters[one.parameter],
                )
            case BatchIdentity():
                return replace(one, step=one.step + self.start)
            case StepSummary() | SeriesSummary() | CosineSummary():
                return self._summary(one)
            case _:
                return self._of_rank(one)

    def _summary(self, one: StepSummary | SeriesSummary | CosineSummary) -> object:
        first = one.first + self.start
        match one:
            case StepSummary():
                return replace(one, first=first, block_first=one.block_first + self.start)
            case CosineSummary():
                return replace(one, first=first, site=self.sites[one.site])
            case SeriesSummary():
                return self._series(one)

    def _series(self, one: SeriesSummary) -> SeriesSummary:
        buckets = unpacked(getattr(one, name) for name in COLUMNS)
        for bucket in buckets:
            # NaN in a bucket without numbers, and stays so.
            bucket.lowest_at += self.start
            bucket.highest_at += self.start
        return SeriesSummary(
            first=one.first + self.start,
            kind=one.kind,
            optimizer=self._optimizer(one.optimizer),
            **packed(buckets),
        )

    def _by_parameter(self, values: Sequence[_One], lacking: _One) -> tuple[_One, ...]:
        """Return values in the order of the whole recording's parameters."""
        own = dict(zip(self.parameters, values, strict=False))
        return tuple(own.get(index, lacking) for index in range(max(own, default=-1) + 1))

    def _of_rank(self, one: object) -> object:
        match one:
            case RankNumbers():
                values = (
                    # Rates are by group, and not by parameter.
                    one.values if one.moment == "rate" else self._by_parameter(one.values, None)
                )
                return replace(one, step=one.step + self.start, values=values)
            case ParameterPlacement():
                return replace(one, parameter=self.parameters[one.parameter])
            case RankPass():
                return replace(
                    one,
                    step=one.step + self.start,
                    forward=self._site(one.forward),
                    backward=self._site(one.backward),
                )
            case WrappedModel():
                return replace(
                    one,
                    step=one.step + self.start,
                    site=self._site(one.site),
                    batch_norm=self._site(one.batch_norm),
                )
            case RankEvent():
                return replace(
                    one,
                    step=one.step + self.start,
                    site=self._site(one.site),
                    related=tuple(self.sites[index] for index in one.related),
                )
            case _:
                return one

    def _site(self, index: int | None) -> int | None:
        return None if index is None else self.sites[index]

    def _optimizer(self, index: int | None) -> int | None:
        return None if index is None else self.optimizers[index]
