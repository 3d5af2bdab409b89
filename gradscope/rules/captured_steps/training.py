"""The changes of a training run to its parameters, by their names."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice

from gradscope.analysis.run_optimizers import are_alike
from gradscope.analysis.surroundings import StepBefore, Surroundings
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    BackwardEvent,
    BackwardStart,
    Event,
    ScalerStepEvent,
    StepEvent,
    ZeroEvent,
    only,
)
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.training import OptimizerRecord, TrainedOptimizer
from gradscope.recording.norm_table import CODES, norms_of
from gradscope.recording.records import CapturedStep, Recording, Site
from gradscope.rules.captured_steps.broken_weights import BrokenWeights
from gradscope.rules.captured_steps.run_facts import (
    Fate,
    RunFacts,
    facts_of,
    fates_of,
    losses_around,
    norms_at_first,
    reaches_others,
)
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import cut_lines

_REACHED = CODES["gradient"]
_SOUGHT = 20
"""Maximum number of consecutive steps that a scaler skips until it finds its scale, which it halves
each time.
"""
_LEAST_WEIGHED = 3
"""Number of steps with equal weights that chance does not explain."""
_MOST_WITHOUT, _SHARE_WITHOUT = 8, 0.2
"""Number of last steps without a gradient, and their share of all steps, that chance does not
explain.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepper:
    """An optimizer that steps after a backward."""

    class_name: str
    site: Site | None
    """Line that made it, or the script's line that led to it."""
    parameters: frozenset[str]
    """Names of the parameters that it holds."""


@dataclass(frozen=True, slots=True)
class _Uses:
    """The steps that use the gradients of a backward."""

    steps: tuple[StepEvent, ...]
    is_skipped: bool
    """Whether a gradient scaler skipped one of its steps."""


@dataclass(frozen=True)
class Training:
    """A training run, by the names of its parameters."""

    context: RuleContext
    """Context of the run."""

    @property
    def recording(self) -> Recording:
        """Recording of the run."""
        return self.context.recording

    @cached_property
    def optimizers(self) -> tuple[TrainedOptimizer, ...]:
        """The optimizers of the run."""
        return self.recording.evidence_of(TrainedOptimizer)

    def functions_of(self, recording: Recording) -> tuple[list[CustomFunctionRecord], list[Site]]:
        """Return the checks of the custom functions in a captured step, and their lines.

        They were made after the script. The lines come behind those of the captured step.
        """
        operations = {node.operation for node in recording.nodes}
        sites: list[Site] = []

        def moved(site: int | None) -> int | None:
            if site is None:
                return None
            sites.append(self.recording.sites[site])
            return len(recording.sites) + len(sites) - 1

        records = [
            replace(one, applied=moved(one.applied), backward=moved(one.backward))
            for one in self.recording.evidence_of(CustomFunctionRecord)
            if one.operation in operations and one.outcome != "unchecked"
        ]
        return records, sites

    @cached_property
    def is_untrained(self) -> bool:
        """Whether the script computes gradients but never makes an optimizer step."""
        return not any(isinstance(event, StepEvent | ScalerStepEvent) for event in self._events)

    def surroundings(self, captured: CapturedStep) -> Surroundings:
        """Return the context that the rest of the run gives to a captured backward."""
        uses = self._uses(captured)
        positions = [event.optimizer for event in uses.steps if event.optimizer is not None]
        held = self._held(captured)
        stepped = held if self.is_untrained else self._stepped(captured) | self._forlorn
        known = {one.name: one.index for one in captured.recording.parameters}
        every = frozenset(known.values())

        def indices(names: Iterable[str]) -> frozenset[int]:
            return frozenset(known[name] for name in names if name in known)

        alive = {name for name, one in self._fates.items() if one.last_alive >= captured.step}
        records = captured.recording.evidence_of(OptimizerRecord)
        # Names of models that follow each other are the same: records tell which one is held.
        sure = {index for record in records for index in record.parameters}
        sure |= {index for name, index in known.items() if self._named[name] < 2}
        step = next(iter(captured.recording.steps), None)
        losses = losses_around(self._events, self._backward(captured), step)
        return Surroundings(
            held=indices(held) & sure if self.optimizers else every,
            stepped=indices(stepped) & sure if self.optimizers else every,
            stepped_ever=indices(self._stepped_from(captured, is_alike=False)),
            stepped_alike=indices(self._stepped_from(captured, is_alike=True)),
            learning=indices(n for n, one in self._fates.items() if one.last_alive >= 0),
            alive=indices(alive),
            moved=indices(
                name
                for name, one in self._fates.items()
                if one.moved and self._named[name] < 2  # of several it is not known which one
            ),
            unmoved=indices(
                name
                for name, one in self._fates.items()
                if one.weighed >= _LEAST_WEIGHED and not one.moved and self._named[name] < 2
            ),
            followed=indices(
                name for name, one in self._fates.items() if one.moved and one.last_alive < 0
            ),
            ceased=indices(self._ceased(captured)),
            unfrozen=indices(self._frozen_before(captured)),
            uncleared=self._uncleared(captured),
            are_optimizers_alike=are_alike(self.optimizers),
            are_gradients_assigned=self._facts.are_gradients_assigned,
            first_norms=norms_at_first(self.recording, known),
            losses=losses.own,
            losses_before=losses.before,
            losses_of_line=losses.of_line,
            highest_rate=max(
                (self._facts.rates.get(position, 0.0) for position in positions), default=None
            ),
            is_only_line=self._facts.has_one_line,
            is_only_loss=self._facts.has_one_line and self._facts.has_one_backward,
            is_stepped=bool(uses.steps) and not uses.is_skipped,
            seeks_derivative=self.is_untrained and reaches_others(captured.recording),
            steps_before=tuple(self._steps_before(captured)),
            is_scale_sought=self._is_scale_sought(captured),
            # Skipped steps belong to the next step that the scaler makes.
            goes_on=captured.step < self._facts.last_sound_step + uses.is_skipped,
        )

    def _held(self, captured: CapturedStep) -> frozenset[str]:
        """Return the parameters that optimizers hold at the time of a backward.

        An optimizer that another one has replaced holds them, too, unless it held them frozen: who
        unfreezes them means the new one to train them.
        """
        after = [one for one in only(StepEvent, self._events) if one.step >= captured.step]
        # A pause of a few steps may be another player's turn.
        is_over = len({one.step for one in after}) >= self._least_without
        stepping = {one.optimizer for one in after}
        ended = {one.optimizer for one in only(StepEvent, self._events)} - stepping
        frozen = frozenset(self._frozen_before(captured)) if is_over and ended else frozenset[str]()
        return frozenset(
            name
            for position, one in enumerate(self.optimizers)
            for name in self._names(one.parameters)
            if position not in ended or name not in frozen
        )

    @cached_property
    def _least_without(self) -> float:
        """Number of steps without something from which on it counts as given up."""
        last = max((step.index for step in self.recording.steps), default=0)
        return max(_MOST_WITHOUT, _SHARE_WITHOUT * last)

    def _frozen_before(self, captured: CapturedStep) -> Iterator[str]:
        """Yield the parameters that were frozen before a captured backward."""
        yield from (one.name for one in self.recording.parameters if not one.requires_grad)
        for other in self.recording.captured_steps:
            if other.step >= captured.step:
                break
            yield from (one.name for one in other.recording.parameters if not one.requires_grad)

    def _ceased(self, captured: CapturedStep) -> Iterator[str]:
        """Yield the parameters that had gradients before a backward, and get none until the end."""
        last = max((step.index for step in self.recording.steps), default=0)
        for name, one in self._fates.items():
            is_over = last - one.last_alive >= self._least_without
            if 0 <= one.last_alive < captured.step and is_over:
                yield name

    def _uncleared(self, captured: CapturedStep) -> int:
        """Return, by backward, the number of gradients that no step uses and nothing clears."""
        backward = self._backward(captured)
        if backward is None:
            return 0
        same = [one for one in only(BackwardEvent, self._events) if one.site == backward.site]
        first = min([backward.step, *(one.step for one in same[:1])])
        # Before the first step of a line, there was nothing to clear.
        found = [one.added for one in same if one.step > first]
        # One backward with nothing added shows that something clears.
        return min(found, default=0) if len(found) > 1 else 0

    def _steps_before(self, captured: CapturedStep) -> Iterator[StepBefore]:
        """Yield the last step of each optimizer before a backward whose weights are broken."""
        end = bisect_left(self._keys, (captured.step, captured.order))
        weights = BrokenWeights(self.context, self.optimizers, captured)
        return weights.steps_before(self._events[:end])

    def _is_scale_sought(self, captured: CapturedStep) -> bool:
        """Return whether a scaler skips all of the few steps after a backward."""
        if not self._uses(captured).is_skipped or not self.was_scaled(captured):
            return False
        start = bisect_left(self._keys, (captured.step, captured.order))
        after = list(only(ScalerStepEvent, self._events[start:]))
        return len(after) <= _SOUGHT and all(event.skipped for event in after)

    def _stepped(self, captured: CapturedStep) -> frozenset[str]:
        """Return the parameters of the optimizers that step after a backward."""
        positions = {event.optimizer for event in self._uses(captured).steps} - {None}
        held = (
            self.optimizers[position].parameters for position in positions if position is not None
        )
        return frozenset(name for parameters in held for name in self._names(parameters))

    def _stepped_from(self, captured: CapturedStep, *, is_alike: bool) -> frozenset[str]:
        """Return the parameters that are stepped after backwards of a line, or of its cuts too."""
        line, cuts = self._turn(captured)
        return frozenset[str]().union(
            *(
                stepped
                for (other, others_cuts), stepped in self._turns.items()
                if other == line and (others_cuts == cuts or not is_alike)
            )
        )

    @cached_property
    def _turns(self) -> dict[tuple[Site | None, frozenset[Site]], frozenset[str]]:
        """Parameters that are stepped after captured backwards, by line and lines of the cuts."""
        found: dict[tuple[Site | None, frozenset[Site]], frozenset[str]] = {}
        for one in self.recording.captured_steps:
            turn = self._turn(one)
            found[turn] = found.get(turn, frozenset()) | self._stepped(one)
        return found

    def _turn(self, captured: CapturedStep) -> tuple[Site | None, frozenset[Site]]:
        return self.line(captured), cut_lines(captured.recording)

    @cached_property
    def _forlorn(self) -> frozenset[str]:
        """Parameters that optimizers step without effect, and no captured step shows why.

        A tensor of another pass may cut them off, such as a generator's samples.
        """
        steps = Counter(event.optimizer for event in self._events if isinstance(event, StepEvent))
        held = (
            one.parameters for position, one in enumerate(self.optimizers) if steps[position] > 1
        )
        found = {name for parameters in held for name in self._names(parameters)}
        found -= {name for name, one in self._fates.items() if one.last_alive >= 0}
        for captured in self.recording.captured_steps if found else ():
            records = captured.recording.parameters
            cut = {records[i].name for one in captured.recording.cuts for i in one.parameters}
            found -= cut & self._stepped(captured)
        return frozenset(found)

    def updates(self, captured: CapturedStep) -> Mapping[str, tuple[float, bool]]:
        """Return by how much the steps after a backward moved the parameters, by name.

        Also whether they had a gradient then, of this backward or of another one.
        """
        norms, records = norms_of(self.recording), self.recording.parameters
        rows = [row for event in self._uses(captured).steps for row in norms.rows_of(event.step)]
        return {
            records[norms.parameters[row]].name: (
                norms.updates[row],
                norms.reaches[row] == _REACHED,
            )
            for row in rows
            if norms.updates[row] >= 0
        }

    def steppers(self, captured: CapturedStep) -> Iterator[Stepper]:
        """Yield the optimizers that step after a backward, or all if none ever steps."""
        names = [record.name for record in self.recording.parameters]
        events = self._uses(captured).steps
        used = (self.optimizers[one.optimizer] for one in events if one.optimizer is not None)
        for record in self.optimizers if self.is_untrained else used:
            yield Stepper(
                class_name=record.class_name,
                site=self.context.site(record.site),
                parameters=frozenset(names[index] for index in record.parameters),
            )

    def optimizer_text(self, captured: CapturedStep) -> str | None:
        """Return the optimizer that steps after a backward, as `SGD(lr=0.1)`."""
        texts = {step.index: step.optimizer for step in self.recording.steps}
        steps = (event.step for event in self._uses(captured).steps)
        return next((texts.get(step) for step in steps), None)

    def line(self, captured: CapturedStep) -> Site | None:
        """Return the line that called the backward."""
        backward = self._backward(captured)
        return None if backward is None else self.context.site(backward.site)

    def was_scaled(self, captured: CapturedStep) -> bool:
        """Return whether a gradient scaler had multiplied the loss."""
        backward = self._backward(captured)
        return backward is not None and backward.scaled

    @property
    def _events(self) -> tuple[Event, ...]:
        return self.context.shared(Windows).events

    @cached_property
    def _keys(self) -> list[tuple[int, int]]:
        """The step and the order of every event, ascending."""
        return sorted((record.step, record.order) for record in self.recording.events)

    def _backward(self, captured: CapturedStep) -> BackwardStart | None:
        """Return the event of a captured backward; None if it is missing."""
        key = (captured.step, captured.order)
        position = bisect_left(self._keys, key)
        is_there = position < len(self._keys) and self._keys[position] == key
        event = self._events[position] if is_there else None
        return event if isinstance(event, BackwardStart) else None

    @cached_property
    def _known_uses(self) -> dict[tuple[int, int], _Uses]:
        return {}

    def _uses(self, captured: CapturedStep) -> _Uses:
        key = (captured.step, captured.order)
        if key not in self._known_uses:
            self._known_uses[key] = self._find_uses(captured)
        return self._known_uses[key]

    def _find_uses(self, captured: CapturedStep) -> _Uses:
        backward = self._backward(captured)
        start = (
            bisect_left(self._keys, (captured.step, captured.order))
            if backward is None
            else backward.position + 1
        )
        reached = backward.reached if isinstance(backward, BackwardEvent) else 0
        found: list[StepEvent] = []
        is_skipped = False
        for event in islice(self._events, start, None):
            # The first backward after a step feeds the next one.
            if isinstance(event, BackwardEvent) and (found or is_skipped):
                break
            # Gradients that are cleared before any step are used by none.
            if isinstance(event, ZeroEvent) and not found and 0 < reached <= event.unspent:
                break
            if isinstance(event, StepEvent):
                found.append(event)
            is_skipped |= isinstance(event, ScalerStepEvent) and event.skipped
        return _Uses(tuple(found), is_skipped)

    def _names(self, parameters: Iterable[int]) -> Iterator[str]:
        return (self.recording.parameters[index].name for index in parameters)

    @cached_property
    def _facts(self) -> RunFacts:
        return facts_of(self._events)

    @cached_property
    def _named(self) -> Counter[str]:
        """Indices of the run's parameters by name, one model after the other."""
        return Counter(record.name for record in self.recording.parameters)

    @cached_property
    def _fates(self) -> dict[str, Fate]:
        return fates_of(self.recording)
