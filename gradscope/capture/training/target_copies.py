"""Detects copies of a network that never change, and averages of weights that go wrong."""

import math
from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.first_elements import FirstElements
from gradscope.capture.source.lines import Line
from gradscope.capture.source.target_updates import alias_line, may_update
from gradscope.capture.step.losses.bootstraps import Bootstrap
from gradscope.capture.step.self_averages import Average
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.locations import Location
from gradscope.capture.training.steps.update_lines import is_lost_average
from gradscope.frozen import dataclass
from gradscope.recording.events import AverageEvent, StillTargetEvent, named

_MOST = 4_096
"""Number of elements of a weight that are compared."""
_MOST_WEIGHTS = 128


_SAME = 1e-4
"""Largest relative difference of two factors that count as equal."""
_LARGEST = 1 + 1e-6
"""Factor of an average above which it moves away from what it averages."""
_SMALLEST = 0.1
"""Factor of an average below which it is worth a record."""
_SLOW = 0.9
"""Factor from which on an average follows slowly: networks that are averaged as equals have less.
"""


_HALF = 0.5
_FALLING = 3
"""Number of steps whose factors fall from one to the next where those of a warm-up are swapped."""


@dataclass(slots=True)
class _Weight:
    """The first elements of a weight, when it was seen first."""

    parameter: WeakTensor[Tensor]
    shape: torch.Size
    elements: FirstElements
    first: bytes
    has_changed: bool = False
    steps: int = 0
    """Number of the optimizer's steps in which it was watched."""

    def look(self) -> None:
        """Compare the elements with the first ones."""
        now = None if self.has_changed else self.elements.read(self.parameter())
        self.has_changed = self.has_changed or (now is not None and now != self.first)


class StillTargets:
    """Watches the weights behind bootstrapped targets, from the captured step that shows them."""

    def __init__(self, gradient_state: GradientState, event_log: EventLog) -> None:
        self._gradient_state, self._event_log = gradient_state, event_log
        self._targets: dict[Line, dict[int, _Weight]] = {}
        """By line of the target: the weights behind it that no optimizer steps, by `id`."""
        self._trained: dict[int, _Weight] = {}
        self._own: set[Line] = set()
        """Lines whose target the trained network itself computes."""
        self.steps = 0
        """Number of optimizer steps so far."""
        self._start: dict[Line, int] = {}

    def see(self, bootstraps: Iterable[Bootstrap], trained: Iterable[Tensor]) -> None:
        """Watch the weights behind the targets of a captured step, and those that it trained."""
        found = list(bootstraps)
        if not found and not self._targets:
            return
        with DisableTorchFunction():
            for parameter in trained:
                _watch(self._trained, parameter)
            for target in found:
                weights = [one for ref in target.weights if (one := ref()) is not None]
                still = [one for one in weights if id(one) not in self._trained]
                if weights and not still:
                    self._own.add(target.line)
                self._start.setdefault(target.line, self.steps)
                watched = self._targets.setdefault(target.line, {}) if still else {}
                for weight in still:
                    _watch(watched, weight)

    def look(self) -> None:
        """Compare the weights with what they were."""
        for weights in self._targets.values():
            for one in weights.values():
                if not one.has_changed and one.parameter() is not None:
                    one.look()
                    one.steps = self.steps
        for one in self._trained.values():
            one.look()

    def finish(self) -> None:
        """Record the targets whose networks have never changed."""
        if not self._targets and not self._own:
            return
        with DisableTorchFunction():
            self.look()
        moved = {one.shape for one in self._trained.values() if one.has_changed}
        for line, weights in self._targets.items():
            still = [
                one
                for key, one in weights.items()
                if not one.has_changed and one.shape in moved and key not in self._trained
            ]
            others = any(one.has_changed for one in weights.values())
            if still:
                self._note(line, still, others_move=others)
        for line in self._own - set(self._targets):
            alias, name = alias_line(line)
            if alias is not None:
                self._event_log.note(
                    "still-target",
                    Location(alias, alias, None, 0),
                    named(StillTargetEvent, same=1.0),
                    subject=name,
                )

    def _note(self, line: Line, still: list[_Weight], *, others_move: bool) -> None:
        parameters = [weight.parameter() for weight in still]
        entries = [self._gradient_state.entry(one) for one in parameters if one is not None]
        known = [one.index for one in entries if one is not None and one.index is not None]
        numbers = named(
            StillTargetEvent,
            steps=float(max(one.steps for one in still) - self._start[line]),
            may_update=float(not others_move and may_update(line)),
        )
        if known:
            numbers |= named(StillTargetEvent, weight=float(known[0]))
        self._event_log.note("still-target", Location(line, line, None, 0), numbers)


def _watch(known: dict[int, _Weight], parameter: Tensor) -> None:
    if id(parameter) in known or len(known) >= _MOST_WEIGHTS:
        return
    if type(parameter) is not torch.nn.Parameter or parameter.ndim < 2:
        return
    elements = FirstElements(parameter, _MOST)
    values = elements.read(parameter)
    if values is not None:
        known[id(parameter)] = _Weight(WeakTensor(parameter), parameter.shape, elements, values)


class WrongAverages:
    """Records such an average once per line, when a second step confirms its factors.

    The factors of an average that warms up differ from step to step: it keeps more of itself each
    time. If it keeps less each time, and less than half of itself, its factors are swapped.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._seen: dict[Line, float] = {}
        self._history: dict[Line, list[float]] = {}
        self._noted: set[Line] = set()
        self._seen_trained: set[Line] = set()

    def see_computed(self, averages: Iterable[Average]) -> None:
        """Record the averages that a loop over the weights computes and stores nowhere."""
        for one in averages:
            if one.line not in self._noted and is_lost_average(one.line):
                self._note(one, is_lost=True)

    def see_trained(self, averages: Iterable[Average]) -> None:
        """Record the slow averages that the optimizer steps with a gradient, in a second step."""
        for one in averages:
            if one.line not in self._noted and _SLOW <= one.own < 1:
                if one.line in self._seen_trained:
                    self._note(one, is_trained=True)
                self._seen_trained.add(one.line)

    def see(self, averages: Iterable[Average]) -> None:
        """Record the averages of a captured step."""
        for one in averages:
            if one.line in self._noted:
                continue
            if self._falls(one):
                self._note(one, falls=True)
                continue
            if _SMALLEST < one.own < _LARGEST:
                continue
            before = self._seen.get(one.line)
            self._seen[one.line] = one.own
            # A factor computed from other numbers may come near such a value by chance, once.
            if before is None or not math.isclose(before, one.own, rel_tol=_SAME):
                continue
            self._note(one)

    def _falls(self, one: Average) -> bool:
        """Return whether an average has kept less of itself in each of the last steps."""
        factors = self._history.setdefault(one.line, [])
        factors.append(one.own)
        del factors[:-_FALLING]
        falls = all(later < before * (1 - _SAME) for before, later in pairwise(factors))
        return len(factors) == _FALLING and falls and 0 < one.own < _HALF and factors[0] < 1

    def _note(
        self, one: Average, *, is_lost: bool = False, is_trained: bool = False, falls: bool = False
    ) -> None:
        self._noted.add(one.line)
        numbers = named(
            AverageEvent,
            own=one.own,
            tensors=float(one.tensors),
            lost=float(is_lost),
            trained=float(is_trained),
            falls=float(falls),
        )
        self._event_log.note("average", Location(one.line, one.line, None, 0), numbers)
