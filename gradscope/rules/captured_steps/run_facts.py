"""Facts on a run: its losses, its steps, and what became of each parameter."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isclose
from typing import NamedTuple

from gradscope.recording.events import BackwardEvent, BackwardStart, Event, StepEvent, only
from gradscope.recording.evidence.parameters import LeafRecord
from gradscope.recording.norm_table import NOT_MEASURED, REACHES, norms_of
from gradscope.recording.records import Recording, StepRecord

_ALIVE = REACHES.index("gradient")


@dataclass(slots=True)
class Fate:
    """What became of a parameter."""

    last_alive: int = -1
    """Last step with a gradient other than zero; -1 if there is none."""
    first_norm: float | None = None
    """Norm of the weights at the first step."""
    moved: bool = False
    weighed: int = 0
    """Number of steps whose norm is known."""

    def weigh(self, norm: float) -> None:
        """Add the norm of the weights at one step."""
        self.weighed += 1
        if self.first_norm is None:
            self.first_norm = norm
        # A norm that is summed in another order differs by rounding.
        self.moved = self.moved or not isclose(norm, self.first_norm, rel_tol=1e-6)


def norms_at_first(recording: Recording, names: Iterable[str]) -> tuple[float | None, ...]:
    """Return the norms of parameters at the first captured backward, None if not known."""
    first = recording.captured_steps[0].recording
    norms = {stat.parameter: stat.weight_norm for stat in first.parameter_stats}
    known = {one.name: norms.get(one.index) for one in first.parameters}
    return tuple(map(known.get, names))


def fates_of(recording: Recording) -> dict[str, Fate]:
    """Return by name what became of the parameters of a run, by all that was measured."""
    found = {record.name: Fate() for record in recording.parameters}
    norms = norms_of(recording)
    rows = zip(norms.parameters, norms.steps, norms.reaches, strict=True)
    # Rows ascend by step: of those of one parameter, the last stays.
    alive = {parameter: step for parameter, step, reach in rows if reach == _ALIVE}
    last = dict(zip(norms.parameters, norms.weights, strict=True))
    first = dict(zip(reversed(norms.parameters), reversed(norms.weights), strict=True))
    for record in recording.parameters:
        fate = found[record.name]
        # Models that replace each other in a variable share their names.
        fate.last_alive = max(fate.last_alive, alive.get(record.index, -1))
        for norm in (first.get(record.index), last.get(record.index)):
            if norm is not None and norm != NOT_MEASURED:
                fate.weigh(norm)
    for captured in recording.captured_steps:
        own = captured.recording.parameters
        for stat in captured.recording.parameter_stats:
            fate = found.setdefault(own[stat.parameter].name, Fate())
            if stat.weight_norm is not None:
                fate.weigh(stat.weight_norm)
            if stat.reach == "gradient":
                fate.last_alive = max(fate.last_alive, captured.step)
    return found


_AFTER = 20
"""Number of losses after a backward that show how training continued."""
_BEFORE = 5
"""Number of losses before a backward that show how high the loss usually is."""
_FIRST = 10
"""Number of backwards from a line that count as its first."""


class Losses(NamedTuple):
    """The losses of a run around one of its backwards."""

    own: tuple[float, ...] = ()
    """The loss of the backward, then those of the next backwards from its line."""
    before: tuple[float, ...] = ()
    """Losses of the last backwards from its line, the latest first."""
    of_line: tuple[float, ...] = ()
    """All losses of its line if it is one of the first backwards there; otherwise none."""


def losses_around(
    events: Sequence[Event], backward: BackwardStart | None, step: StepRecord | None
) -> Losses:
    """Return the losses around a backward; those of a captured step alone if it is unknown."""
    if backward is None:
        return Losses(own=() if step is None or step.loss is None else (step.loss,))
    return Losses(
        own=tuple(_losses_from(events, backward)),
        before=tuple(_losses_before(events, backward)),
        of_line=tuple(_all_losses(events, backward)),
    )


def _all_losses(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    if sum(1 for _ in _losses(events[: backward.position], backward)) < _FIRST:
        yield from _losses(events, backward)


def _losses_from(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    yield from islice(_losses(islice(events, backward.position, None), backward), _AFTER + 1)


def _losses_before(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    earlier = (events[position] for position in range(backward.position - 1, -1, -1))
    yield from islice(_losses(earlier, backward), _BEFORE)


def _losses(events: Iterable[Event], backward: BackwardStart) -> Iterator[float]:
    # Losses of other lines may have another size.
    same = (one for one in only(BackwardEvent, events) if one.site == backward.site)
    yield from (one.loss for one in same if one.loss is not None)


class RunFacts(NamedTuple):
    """Facts on the backward passes and the steps of a run."""

    has_one_line: bool
    """Whether every backward is of the same line."""
    has_one_backward: bool
    """Whether every step is fed by one backward."""
    are_gradients_assigned: bool
    """Whether an optimizer steps with fresh gradients of which no backward is known."""
    last_sound_step: int
    """The last step with finite gradients that are not all zero; -1 without one."""
    rates: Mapping[int, float]
    """By optimizer: the largest learning rate of its steps."""


def facts_of(events: Sequence[Event]) -> RunFacts:
    """Return the facts of a run."""
    steps = list(only(StepEvent, events))
    rates: dict[int, float] = {}
    for step in steps:
        if step.optimizer is not None and step.lr is not None:
            rates[step.optimizer] = max(rates.get(step.optimizer, 0.0), step.lr)
    # A norm that is unknown shows nothing unsound. Zeros may be what a script puts in place of NaN.
    sound = (
        one.step for one in steps if not one.nonfinite and (one.norm is None or 0 < one.norm < inf)
    )
    return RunFacts(
        has_one_line=len({one.site for one in only(BackwardEvent, events)}) <= 1,
        has_one_backward=all((one.backwards or 0) <= 1 for one in steps),
        are_gradients_assigned=any(
            one.fresh and one.backwards == 0 and not one.manual for one in steps
        ),
        last_sound_step=max(sound, default=-1),
        rates=rates,
    )


def reaches_others(recording: Recording) -> bool:
    """Return whether a tensor that is in no module gets a gradient: an input, or a variable."""
    unregistered = {leaf.node for leaf in recording.evidence_of(LeafRecord)}
    owners = (
        recording.modules[recording.parameters[node.parameter].module]
        for node in recording.nodes
        if node.parameter is not None
    )
    leaves = {node.index for node in recording.nodes if node.kind == "leaf"}
    return bool(leaves - unregistered) or any(not owner.path for owner in owners)
