"""The clips of a script: what each was given, and which steps take its gradients."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import isinf

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import literal
from gradscope.recording.events import ClipEvent, ClipValueEvent, Event, StepEvent, only
from gradscope.recording.evidence.training import ClipScope
from gradscope.recording.norm_table import NormTable, norms_of

_FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "clip-norm": ("clip_grad_norm_", "max_norm"),
    "clip-value": ("clip_grad_value_", "clip_value"),
}
"""By kind of event: torch's function, and its argument that sets the limit."""
_NEVER_REACHED = 1e9
"""Limits of at least this size only serve to get the norm from the function, as infinity does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A call of a clip function."""

    event: ClipEvent
    parameters: frozenset[int] | None
    """Parameters that the call was given; None if unknown."""
    step_before: StepEvent | None
    """Last step before the clip by an optimizer that holds one of the parameters."""
    steps: tuple[StepEvent, ...]
    """Next step of each such optimizer."""
    later: tuple[Event, ...]
    """Events between the call and that step, or the next step of any optimizer."""
    count: int = 1
    """Number of calls, one of a step, that it stands for in a long run."""

    @property
    def step(self) -> StepEvent | None:
        """The first of the next steps; None without one."""
        return _first(self.steps)

    @property
    def limit(self) -> float | None:
        """Largest norm or value that the clip allows."""
        return self.event.limit

    @property
    def norm(self) -> float | None:
        """The norm that the function returns; None of a clip by value."""
        return None if isinstance(self.event, ClipValueEvent) else self.norm_before

    @property
    def norm_before(self) -> float | None:
        """Norm of the gradients before the call; None if not measured."""
        return self.event.norm

    @property
    def only_measures(self) -> bool:
        """Whether it is called only for the norm that it returns, and clips nothing."""
        return self.limit is None or isinf(self.limit) or self.limit >= _NEVER_REACHED

    @property
    def cuts(self) -> bool | None:
        """Whether anything exceeds the limit; None if unknown."""
        if isinstance(self.event, ClipValueEvent):
            before, after = self.norm_before, self.event.norm_after
            if before is not None and after is not None:
                return not before <= after  # so is NaN
        if self.limit is None or self.norm is None:
            return None
        return not self.norm <= self.limit  # so is NaN

    @property
    def text(self) -> str:
        """The call, as `clip_grad_norm_(max_norm=1)`."""
        function, name = _FUNCTIONS[self.event.kind]
        limit = "" if self.limit is None else f"{name}={literal(self.limit)}"
        return f"{self.event.subject or function}({limit})"


@dataclass(frozen=True)
class Clips:
    """Every call of a clip function in a run."""

    indexed: RecordingIndex

    @cached_property
    def windows(self) -> Windows:
        """The steps of the run."""
        return self.indexed.shared(Windows)

    @cached_property
    def all(self) -> tuple[Clip, ...]:
        """The calls, in their order."""
        return tuple(self._clip(event) for event in only(ClipEvent, self.windows.events))

    @cached_property
    def by_line(self) -> tuple[tuple[Clip, ...], ...]:
        """The calls that can clip something, grouped by line."""
        found: dict[tuple[int | None, str], list[Clip]] = {}
        for clip in self.all:
            if not clip.only_measures:
                found.setdefault((clip.event.site, clip.event.kind), []).append(clip)
        return tuple(map(tuple, found.values()))

    @cached_property
    def norms(self) -> NormTable:
        """The norms of parameters as the optimizers found them."""
        return norms_of(self.indexed.recording)

    def norms_in(self, step: int) -> Mapping[int, float]:
        """Return the norm of each gradient that the optimizer found in a step, by parameter."""
        rows = self.norms.rows_of(step)
        found = ((self.norms.parameters[row], self.norms.gradients[row]) for row in rows)
        # A negative number says that there was no gradient; NaN is a measurement and stays.
        return {parameter: norm for parameter, norm in found if not norm < 0}

    def is_ahead(self, calls: Sequence[Clip]) -> bool:
        """Return whether the loop comes by a line before its first backward."""
        first = self.windows.first_pass
        return first is None or calls[0].event.position < first

    def _clip(self, event: ClipEvent) -> Clip:
        scope = event.scope
        parameters = None if scope is None else self._scopes[int(scope)]
        before, after = self._steps_around(event.position, self._owners(event, parameters))
        end = _first(after or self._steps_around(event.position, None)[1])
        return Clip(
            event=event,
            parameters=parameters,
            step_before=max(before, key=lambda step: step.position, default=None),
            steps=tuple(after),
            later=self.windows.events[event.position + 1 : None if end is None else end.position],
            count=self.windows.kept.counts.get(event.step, 1),
        )

    @cached_property
    def _scopes(self) -> tuple[frozenset[int], ...]:
        """The sets of parameters that are clipped together."""
        scopes = self.indexed.recording.evidence_of(ClipScope)
        return tuple(frozenset(scope.parameters) for scope in scopes)

    @cached_property
    def _owners_of_scopes(self) -> Mapping[frozenset[int], tuple[int, ...]]:
        """By set of parameters: the optimizers that hold one of them."""
        return {
            scope: tuple(
                position
                for position, one in enumerate(self.windows.optimizers)
                if not scope.isdisjoint(one.parameters)
            )
            for scope in self._scopes
        }

    def _owners(
        self, event: ClipEvent, parameters: frozenset[int] | None
    ) -> tuple[int, ...] | None:
        """Return the optimizers whose gradients are clipped; None if it may be any."""
        if parameters:
            return self._owners_of_scopes[parameters]
        return None if event.optimizer is None else (event.optimizer,)

    def _steps_around(
        self, position: int, owners: Iterable[int | None] | None
    ) -> tuple[list[StepEvent], list[StepEvent]]:
        """Return, for each of some optimizers, the last step before an index and the next one."""
        before: list[StepEvent] = []
        after: list[StepEvent] = []
        for owner in self._steps if owners is None else owners:
            steps = self._steps.get(owner, ())
            # Runs have as many clips as steps: a scan of all steps for each takes quadratic time.
            at = bisect_right(self._positions.get(owner, ()), position)
            before += steps[max(at - 1, 0) : at]
            after += steps[at : at + 1]
        return before, after

    @cached_property
    def _positions(self) -> Mapping[int | None, Sequence[int]]:
        """By optimizer: the indices of its steps."""
        return {owner: [step.position for step in steps] for owner, steps in self._steps.items()}

    @cached_property
    def _steps(self) -> Mapping[int | None, Sequence[StepEvent]]:
        """By optimizer: its steps."""
        found: dict[int | None, list[StepEvent]] = {}
        for event in only(StepEvent, self.windows.events):
            found.setdefault(event.optimizer, []).append(event)
        return found


def _first(steps: Iterable[StepEvent]) -> StepEvent | None:
    return min(steps, key=lambda step: step.position, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedStep:
    """A step before which some of its optimizer's gradients were clipped."""

    event: StepEvent
    clips: tuple[Clip, ...]
    """Clips since the optimizer's last step that had new gradients."""
    inside: tuple[int, ...]
    """Parameters with a gradient that at least one clip was given."""
    outside: tuple[int, ...]
    """Parameters with a gradient that no clip was given."""


_Scopes = tuple[frozenset[int], int | None, tuple[frozenset[int], ...]]
"""Parameters with a gradient in a step, its optimizer, and the parameters of each clip."""
_Split = tuple[tuple[int, ...], tuple[int, ...]]
"""Parameters inside and outside of the clips."""


def clipped_steps(indexed: RecordingIndex) -> tuple[ClippedStep, ...]:
    """Return every step with a clip before it, if the parameters of all clips are known."""
    clips = indexed.shared(Clips)
    before: dict[int, list[Clip]] = {}
    for clip in clips.all:
        for step in clip.steps:
            before.setdefault(step.position, []).append(clip)
    steps = {event.position: event for event in only(StepEvent, clips.windows.events)}
    known: dict[_Scopes, _Split] = {}
    found = (
        _clipped_step(clips, steps[position], calls, known) for position, calls in before.items()
    )
    return tuple(step for step in found if step is not None)


def _clipped_step(
    clips: Clips, event: StepEvent, calls: Iterable[Clip], known: dict[_Scopes, _Split]
) -> ClippedStep | None:
    cutting = [clip for clip in calls if not clip.only_measures and clip.event.fresh]
    measured = clips.norms.with_gradient(event.step)
    if not measured or any(clip.parameters is None for clip in cutting):
        return None
    scopes = measured, event.optimizer, tuple(clip.parameters or frozenset() for clip in cutting)
    if scopes not in known:  # nearly all steps are alike
        optimizers = clips.windows.optimizers
        held = () if event.optimizer is None else optimizers[event.optimizer].parameters
        taken = measured.intersection(held)
        inside = taken.intersection(frozenset().union(*scopes[2]))
        known[scopes] = tuple(sorted(inside)), tuple(sorted(taken - inside))
    of_clips, others = known[scopes]
    if not of_clips:
        return None
    return ClippedStep(event=event, clips=tuple(cutting), inside=of_clips, outside=others)
