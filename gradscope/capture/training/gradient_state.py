"""Tracks the state of every parameter's gradient: empty, unspent, or spent by a step.

It uses no hooks. The identity and version of a gradient show whether it was replaced or written to
since the last check, which takes half a microsecond per parameter.
"""

from collections.abc import Iterable
from dataclasses import field

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.arithmetic import to_host
from gradscope.capture.reading import NotReadable, elements, is_plain_float
from gradscope.capture.tensor_references import WeakLeaf, WeakTensor
from gradscope.frozen import dataclass

EMPTY, UNSPENT, SPENT = range(3)
"""No gradient, or a zeroed one; one that no step has used; one that a step has used."""

_NONE = id(None)
_GONE = -1
"""Version of a freed parameter."""


@dataclass(slots=True)
class Entry:
    """A parameter and its gradient."""

    parameter: WeakTensor[Tensor]
    index: int | None = None
    """Index among the recording's parameters, once it has one."""
    state: int = EMPTY
    passes: int = 0
    """Number of backward passes accumulated in its gradient."""
    clipped: bool = False
    """Whether it was clipped since the previous step."""
    is_touched: bool = False
    """Whether the parameter changed since the gradient arrived, not by an optimizer's step."""
    is_scaled: bool = False
    """Whether its gradient is still multiplied by the scale of a gradient scaler."""
    is_written: bool = False
    """Whether the script itself has written to the gradient, for example to divide it."""
    is_assigned: bool = False
    """Whether the script has ever made the gradient itself, without a backward."""
    in_optimizer: bool = False
    name: str = ""
    """The script's name for it, if it is not part of a model."""


@dataclass(frozen=True, slots=True)
class States:
    """The states of all gradients at a moment."""

    entries: tuple[Entry, ...]
    states: tuple[int, ...]
    passes: tuple[int, ...]
    flags: tuple[tuple[bool, bool, bool, bool], ...]


@dataclass(slots=True, kw_only=True)
class Outside:
    """Changes to gradients and parameters outside of observed calls."""

    removed: int = 0
    """Number of gradients that are None now."""
    zeroed: int = 0
    """Number of gradients that are filled with zeros now."""
    unspent: int = 0
    """Number of these that no step had used."""
    by_hand: list[Entry] = field(default_factory=list)
    """Changed parameters with an unspent gradient and in no optimizer."""


@dataclass(slots=True, kw_only=True)
class Arrival:
    """Effect of one backward on the gradients."""

    reached: list[Entry] = field(default_factory=list)
    stale: int = 0
    """Number of parameters that already held a gradient used by a step."""
    added: int = 0
    """Number of parameters that already held a gradient not used by a step."""

    def add(self, entry: Entry) -> None:
        """Record that the backward reached a parameter."""
        self.reached.append(entry)
        self.stale += entry.state == SPENT
        self.added += entry.state == UNSPENT
        entry.passes = 1 if entry.state == EMPTY else entry.passes + 1
        entry.state, entry.is_touched = UNSPENT, False


class GradientState:
    """The known parameters, and the state of their gradients."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._references: list[WeakTensor[Tensor]] = []
        self._locations: dict[int, int] = {}
        """By `id` of the parameter."""
        self._ids: list[int] = []
        self._versions: list[int] = []
        self._weights: list[int] = []
        self._dead = False
        self._early = Arrival()
        """Gradients of the running backward that a step uses before it ends."""
        self.steps_are_unseen = False
        """Whether compiled code may contain optimizer steps, which are invisible."""
        self.may_be_replayed = False
        """Whether a backward is part of a CUDA graph, whose replays write gradients invisibly."""

    def entry(self, parameter: Tensor) -> Entry | None:
        """Return a parameter's entry, None if it is unknown."""
        location = self._locations.get(id(parameter))
        if location is None:
            return None
        entry = self.entries[location]
        return entry if entry.parameter() is parameter else None

    def add(self, parameter: Tensor) -> Entry | None:
        """Return a parameter's entry, added if it is new; None for tensors without gradients."""
        entry = self.entry(parameter)
        # Only leaves accumulate into `.grad`; inference tensors never get a gradient.
        if entry is not None or not parameter.is_leaf or parameter.is_inference():
            return entry
        # Weak: a strong reference would keep models of earlier folds or trials alive.
        # What requires grad stays a leaf: torch refuses to write computed values into it.
        kind = WeakTensor if parameter.requires_grad else WeakLeaf
        reference = kind(parameter, self._note_death)
        entry = Entry(reference)
        gradient = parameter.grad
        if gradient is not None:
            entry.state, entry.passes = UNSPENT, 1
        self._locations[id(parameter)] = len(self.entries)
        self.entries.append(entry)
        self._references.append(reference)
        self._ids.append(id(gradient))
        self._versions.append(_version(gradient))
        self._weights.append(parameter._version)
        return entry

    def _note_death(self, _: object) -> None:
        # Only noted here: Python may free a parameter in the middle of a loop over the entries.
        self._dead = True

    def _bury(self) -> None:
        """Remove the entries of freed parameters."""
        self._dead = False
        kept = [
            position for position, entry in enumerate(self.entries) if entry.parameter() is not None
        ]
        self.entries = [self.entries[location] for location in kept]
        self._references = [self._references[location] for location in kept]
        self._ids = [self._ids[location] for location in kept]
        self._versions = [self._versions[location] for location in kept]
        self._weights = [self._weights[location] for location in kept]
        self._locations = {
            id(entry.parameter()): position for position, entry in enumerate(self.entries)
        }

    def _changed(self) -> list[int]:
        """Check all gradients; return the indices of those that changed."""
        if self._dead:
            self._bury()
        parameters = [reference() for reference in self._references]
        gradients = [None if one is None else one.grad for one in parameters]
        # `zero_grad(set_to_none=True)` and the first accumulation replace `.grad`. Later
        # accumulations, clips and foreach kernels write in place, which increments the version.
        ids = list(map(id, gradients))
        try:
            # List comparisons in C: this runs for every parameter at every call of a step.
            versions = [-1 if one is None else one._version for one in gradients]
        except RuntimeError:  # one of them was made in inference mode
            versions = list(map(_version, gradients))
        if ids == self._ids and versions == self._versions:
            return []
        pairs = zip(ids, self._ids, versions, self._versions, strict=True)
        changed = [position for position, (a, b, c, d) in enumerate(pairs) if a != b or c != d]
        self._ids, self._versions = ids, versions
        return changed

    def _weight_versions(self) -> list[int]:
        """Return the versions of all parameters."""
        parameters = [reference() for reference in self._references]
        return [_GONE if one is None else one._version for one in parameters]

    def holds(self, state: int) -> bool:
        """Return whether any gradient is known to be in a state."""
        return any(entry.state == state for entry in self.entries)

    def sync(self, changed: Iterable[Entry] = ()) -> Outside:
        """Record changes made since the last check outside of observed calls.

        Args:
            changed: Parameters that changed without a change of their version.
        """
        if self._dead:
            self._bury()
        # First: they may have been zeroed after the weights were changed.
        outside = Outside(by_hand=self.note_touched(changed))
        before, written = self._ids, []
        for location in self._changed():
            entry = self.entries[location]
            if self._ids[location] == _NONE:
                if entry.state != EMPTY:
                    outside.removed += 1
                    self._empty(entry, outside)
            else:
                written.append((entry, self._ids[location] != before[location]))
        self._take_in_written(written, outside)
        for entry in outside.by_hand:
            if entry.state == UNSPENT:
                entry.state = SPENT
        return outside

    def _take_in_written(self, written: list[tuple[Entry, bool]], outside: Outside) -> None:
        """Record gradients that were written to or replaced."""
        zeros = _are_zero([entry for entry, _ in written])
        for (entry, is_another), is_zero in zip(written, zeros, strict=True):
            if is_zero:
                outside.zeroed += entry.state != EMPTY
                self._empty(entry, outside)
            elif is_another or entry.state == EMPTY:  # assigned: `p.grad = …`
                entry.state, entry.passes, entry.is_assigned = UNSPENT, 0, True
            else:
                entry.is_written = True

    def _empty(self, entry: Entry, outside: Outside) -> None:
        outside.unspent += entry.state == UNSPENT and not entry.is_touched
        _clear(entry)

    def note_touched(self, changed: Iterable[Entry] = ()) -> list[Entry]:
        """Record parameters that changed since their gradient arrived, not by an optimizer's step.

        Args:
            changed: Some that changed without a change of their version.

        Returns:
            Those in no optimizer, which mean that the script made a manual step. If optimizer steps
                are invisible, all of them.
        """
        if not self.holds(UNSPENT):
            return []
        known = set(map(id, changed))
        by_hand = []
        versions = self._weight_versions()
        for entry, now, before in zip(self.entries, versions, self._weights, strict=True):
            if now == _GONE or entry.state != UNSPENT:
                continue
            if now != before or id(entry) in known:
                entry.is_touched = True
                if self.steps_are_unseen or not entry.in_optimizer:
                    by_hand.append(entry)
                    entry.state = SPENT
        self._weights = versions
        return by_hand

    def clear_false_stale(self) -> int:
        """Mark spent gradients that are all zeros as empty; return how many there were.

        `p.grad.data.zero_()` does not change the version. If only some gradients are zeros, they
        were so when the step used them: none is counted then.
        """
        spent = [entry for entry in self.entries if entry.state == SPENT]
        found = [e for e, is_zero in zip(spent, _are_zero(spent), strict=True) if is_zero]
        for entry in found:
            _clear(entry)
        return len(found) if 2 * len(found) >= len(spent) else 0

    def arrived(self) -> Arrival:
        """Record the gradients that a backward left."""
        arrival, self._early = self._early, Arrival()
        for location in self._changed():
            if self._ids[location] == _NONE:
                _clear(self.entries[location])
            else:
                arrival.add(self.entries[location])
        self._weights = self._weight_versions()
        return arrival

    def came_early(self, entries: Iterable[Entry]) -> None:
        """Record some gradients of a backward that still runs."""
        for entry, is_changed in [(one, self.settle([one])) for one in entries]:
            if is_changed and (p := entry.parameter()) is not None and p.grad is not None:
                self._early.add(entry)

    def settle(self, entries: Iterable[Entry]) -> bool:
        """Record that some gradients were written to; return whether any was."""
        is_changed = False
        for entry in entries:
            parameter = entry.parameter()
            location = None if parameter is None else self._locations.get(id(parameter))
            if parameter is None or location is None or self._dead:
                continue
            now = id(parameter.grad), _version(parameter.grad)
            is_changed |= now != (self._ids[location], self._versions[location])
            self._ids[location], self._versions[location] = now
        return is_changed

    def zeroed(self, only: Iterable[Entry] | None = None) -> None:
        """Record the gradients left by a call that zeroes all or some of them."""
        if only is None:
            for location in self._changed():
                _clear(self.entries[location])
            return
        for entry in only:
            if self.settle([entry]):
                _clear(entry)

    def spend(self, entries: Iterable[Entry]) -> None:
        """Record that a step used some gradients."""
        for entry in entries:
            if entry.state == UNSPENT:
                # A replay writes new gradients without a trace, so none is known to be spent.
                entry.state = UNSPENT if self.may_be_replayed else SPENT
                entry.clipped = entry.is_written = False

    def states(self) -> States:
        """Return the states of all gradients."""
        entries = self.entries
        return States(
            tuple(entries),
            tuple([entry.state for entry in entries]),
            tuple([entry.passes for entry in entries]),
            tuple([(e.clipped, e.is_touched, e.is_scaled, e.is_written) for e in entries]),
        )

    def restore(self, known: States) -> None:
        """Restore the states of a moment after the same calls.

        Gradients and weights are assumed to be as those calls left them.
        """
        rows = zip(known.entries, known.states, known.passes, known.flags, strict=True)
        for entry, state, passes, flags in rows:
            entry.state, entry.passes = state, passes
            entry.clipped, entry.is_touched, entry.is_scaled, entry.is_written = flags
        changed = self._changed()
        self._weights = self._weight_versions()
        for entry, gradient in zip(self.entries, self._ids, strict=True):
            if gradient == _NONE:
                _clear(entry)
        self._take_as_assigned([self.entries[location] for location in changed])

    def _take_as_assigned(self, changed: list[Entry]) -> None:
        """Take gradients that the script makes itself as made again since their last use.

        No call shows it. They count as touched, as whether a step has used them is not known.
        """
        made = [entry for entry in changed if entry.is_assigned and entry.state != UNSPENT]
        gradients = [None if (p := entry.parameter()) is None else p.grad for entry in made]
        for entry, gradient, is_zero in zip(made, gradients, _are_zero(made), strict=True):
            if gradient is not None and not is_zero:
                entry.state, entry.passes, entry.is_touched = UNSPENT, 0, True

    def accept(self) -> None:
        """Accept that an observed call wrote to gradients."""
        for location in self._changed():
            if self._ids[location] == _NONE:
                _clear(self.entries[location])


def _version(gradient: Tensor | None) -> int:
    """Return how often a gradient was written to, -1 if it does not count versions."""
    # Tensors made in inference mode do not count versions: reading one raises.
    return -1 if gradient is None or gradient.is_inference() else gradient._version


def _clear(entry: Entry) -> None:
    entry.state, entry.passes = EMPTY, 0
    entry.clipped = entry.is_touched = entry.is_scaled = entry.is_written = False


def _are_zero(entries: list[Entry]) -> list[bool]:
    """Return which entries have a gradient of zeros only."""
    gradients = [None if (p := entry.parameter()) is None else p.grad for entry in entries]
    with DisableTorchFunction(), torch.no_grad():
        found = [gradient is not None and _is_zero(gradient) for gradient in gradients]
        waiting = [one for one in found if isinstance(one, Tensor)]
        read = iter([bool(one) for one in to_host(waiting)])
        return [next(read) if isinstance(one, Tensor) else one for one in found]


def _is_zero(gradient: Tensor) -> bool | Tensor:
    """Return the answer, or on an accelerator the tensor that contains it."""
    try:
        part = gradient if is_plain_float(gradient) else elements(gradient).values
    except NotReadable:
        return False
    if not part.is_cpu:
        return torch.any(part).logical_not()
    if part.dim() and bool(torch.any(part[:1])):
        return False  # true of most gradients, and saves reading the rest
    return not bool(torch.any(part))
