"""What every parameter's gradient is: none, waiting for a step, or used by one already.

Nothing is hooked for it: a gradient's identity and version tell whether it was replaced or written
to since it was last looked at, which costs half a microsecond a parameter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import ref

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.arithmetic import to_host
from gradscope.capture.reading import NotReadable, elements, is_plain_float

EMPTY, UNSPENT, SPENT = range(3)
"""No gradient, or one that was zeroed; one that no step has used; one that a step has used."""

_NONE = id(None)
_GONE = -1
"""In place of the version of a parameter that is no more."""


@dataclass(slots=True)
class Entry:
    """A parameter and its gradient."""

    parameter: ref[Tensor]
    index: int | None = None
    """Its place among the recording's parameters, once it has one."""
    state: int = EMPTY
    passes: int = 0
    """Backward passes that its gradient is made of."""
    clipped: bool = False
    """Whether it was clipped since the step before."""
    is_touched: bool = False
    """Whether the parameter changed, other than by an optimizer's step, since the gradient came."""
    is_scaled: bool = False
    """Whether its gradient is still multiplied by the scale of a gradient scaler."""
    is_written: bool = False
    """Whether the script has written to the gradient itself, as to divide it."""
    in_optimizer: bool = False
    name: str = ""
    """What the script calls it, where it is part of no model."""


@dataclass(frozen=True, slots=True)
class States:
    """The states of all gradients at a moment."""

    entries: tuple[Entry, ...]
    states: tuple[int, ...]
    passes: tuple[int, ...]
    flags: tuple[tuple[bool, bool, bool, bool], ...]


@dataclass(slots=True, kw_only=True)
class Outside:
    """What was done to gradients and parameters without a call that is watched."""

    removed: int = 0
    """Gradients that are None now."""
    zeroed: int = 0
    """Gradients that are filled with zeros now."""
    unspent: int = 0
    """How many of these no step had used."""
    by_hand: list[Entry] = field(default_factory=list)
    """Parameters with an unspent gradient, in no optimizer, that were changed."""


@dataclass(slots=True, kw_only=True)
class Arrival:
    """What one backward did to the gradients."""

    reached: list[Entry] = field(default_factory=list)
    stale: int = 0
    """How many of them held a gradient that a step had used already."""
    added: int = 0
    """How many of them held one that no step had used yet."""

    def add(self, entry: Entry) -> None:
        """Take in that the backward has come to a parameter."""
        self.reached.append(entry)
        self.stale += entry.state == SPENT
        self.added += entry.state == UNSPENT
        entry.passes = 1 if entry.state == EMPTY else entry.passes + 1
        entry.state, entry.is_touched = UNSPENT, False


class GradientState:
    """The parameters that are known, and the state of their gradients."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._references: list[ref[Tensor]] = []
        self._locations: dict[int, int] = {}
        """By `id` of the parameter."""
        self._ids: list[int] = []
        self._versions: list[int] = []
        self._weights: list[int] = []
        self._dead = False
        self._early = Arrival()
        """What the backward that runs has left by now where a step was to use it at once."""
        self.steps_are_unseen = False
        """Whether optimizers may step in compiled code, which calls nobody; none was seen to."""
        self.may_be_replayed = False
        """Whether a backward is part of a CUDA graph, whose replays write gradients unseen."""

    def entry(self, parameter: Tensor) -> Entry | None:
        """Return a parameter's entry, None where it is not known."""
        location = self._locations.get(id(parameter))
        if location is None:
            return None
        entry = self.entries[location]
        return entry if entry.parameter() is parameter else None

    def add(self, parameter: Tensor) -> Entry | None:
        """Return a parameter's entry, made now if it is new; None for what gets no gradient."""
        entry = self.entry(parameter)
        if entry is not None or not parameter.is_leaf or parameter.is_inference():
            return entry
        reference = ref(parameter, self._note_death)
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
        self._dead = True

    def _bury(self) -> None:
        """Forget the parameters that are gone."""
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

    def _look(self) -> list[int]:
        """Look at all gradients; return the places of those that are not as they were."""
        if self._dead:
            self._bury()
        parameters = [reference() for reference in self._references]
        gradients = [None if one is None else one.grad for one in parameters]
        ids = list(map(id, gradients))
        try:
            versions = [-1 if one is None else one._version for one in gradients]
        except RuntimeError:  # one of them was made in inference mode
            versions = list(map(_version, gradients))
        if ids == self._ids and versions == self._versions:
            return []
        pairs = zip(ids, self._ids, versions, self._versions, strict=True)
        changed = [position for position, (a, b, c, d) in enumerate(pairs) if a != b or c != d]
        self._ids, self._versions = ids, versions
        return changed

    def _look_at_weights(self) -> list[int]:
        """Return the versions of all parameters."""
        parameters = [reference() for reference in self._references]
        return [_GONE if one is None else one._version for one in parameters]

    def holds(self, state: int) -> bool:
        """Return whether any gradient is in a state, as far as is known."""
        return any(entry.state == state for entry in self.entries)

    def sync(self, changed: Iterable[Entry] = ()) -> Outside:
        """Take in what was done since the last look without a call that is watched.

        Args:
            changed: Parameters that were, without a trace in their version.
        """
        if self._dead:
            self._bury()
        # Before gradients are looked at: they may have been zeroed after the weights were changed.
        outside = Outside(by_hand=self.note_touched(changed))
        before, written = self._ids, []
        for location in self._look():
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
        """Take in gradients that were written to, or another tensor in place of each."""
        zeros = _are_zero([entry for entry, _ in written])
        for (entry, is_another), is_zero in zip(written, zeros, strict=True):
            if is_zero:
                outside.zeroed += entry.state != EMPTY
                self._empty(entry, outside)
            elif is_another or entry.state == EMPTY:  # assigned, as `p.grad = …`
                entry.state, entry.passes = UNSPENT, 0
            else:
                entry.is_written = True

    def _empty(self, entry: Entry, outside: Outside) -> None:
        outside.unspent += entry.state == UNSPENT and not entry.is_touched
        _clear(entry)

    def note_touched(self, changed: Iterable[Entry] = ()) -> list[Entry]:
        """Take in that parameters were changed since their gradient came, by no optimizer's step.

        Args:
            changed: Some that were, without a trace in their version.

        Returns:
            Those of them that are in no optimizer: so the script has made a step by hand. Where
            the steps of optimizers are not seen, all of them.
        """
        if not self.holds(UNSPENT):
            return []
        known = set(map(id, changed))
        by_hand = []
        versions = self._look_at_weights()
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
        """Empty gradients that a step has used and that are zeros now; return how many.

        `p.grad.data.zero_()` leaves no trace in the version. A few among others that are not
        zeros were so when the step used them: none is counted then.
        """
        spent = [entry for entry in self.entries if entry.state == SPENT]
        found = [e for e, is_zero in zip(spent, _are_zero(spent), strict=True) if is_zero]
        for entry in found:
            _clear(entry)
        return len(found) if 2 * len(found) >= len(spent) else 0

    def arrived(self) -> Arrival:
        """Take in what a backward has left."""
        arrival, self._early = self._early, Arrival()
        for location in self._look():
            if self._ids[location] == _NONE:
                _clear(self.entries[location])
            else:
                arrival.add(self.entries[location])
        self._weights = self._look_at_weights()
        return arrival

    def came_early(self, entries: Iterable[Entry]) -> None:
        """Take in what a backward that still runs has left in some gradients."""
        for entry, is_changed in [(one, self.settle([one])) for one in entries]:
            if is_changed and (p := entry.parameter()) is not None and p.grad is not None:
                self._early.add(entry)

    def settle(self, entries: Iterable[Entry]) -> bool:
        """Take in that some gradients were written to; return whether any was."""
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
        """Take in what a call that zeroes gradients has left, of all or of some."""
        if only is None:
            for location in self._look():
                _clear(self.entries[location])
            return
        for entry in only:
            if self.settle([entry]):
                _clear(entry)

    def spend(self, entries: Iterable[Entry]) -> None:
        """Take in that a step has used some gradients."""
        for entry in entries:
            if entry.state == UNSPENT:
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
        """Put the states to those of a moment when the same calls had been made.

        Gradients and weights are taken to be as those calls have left them.
        """
        rows = zip(known.entries, known.states, known.passes, known.flags, strict=True)
        for entry, state, passes, flags in rows:
            entry.state, entry.passes = state, passes
            entry.clipped, entry.is_touched, entry.is_scaled, entry.is_written = flags
        self._look()
        self._weights = self._look_at_weights()
        for entry, gradient in zip(self.entries, self._ids, strict=True):
            if gradient == _NONE:
                _clear(entry)

    def accept(self) -> None:
        """Take in that gradients were written to by a call that is watched."""
        for location in self._look():
            if self._ids[location] == _NONE:
                _clear(self.entries[location])


def _version(gradient: Tensor | None) -> int:
    """Return how often a gradient was written to, -1 where nobody counts."""
    return -1 if gradient is None or gradient.is_inference() else gradient._version


def _clear(entry: Entry) -> None:
    entry.state, entry.passes = EMPTY, 0
    entry.clipped = entry.is_touched = entry.is_scaled = entry.is_written = False


def _are_zero(entries: list[Entry]) -> list[bool]:
    """Return of which entries the gradient holds nothing but zeros."""
    gradients = [None if (p := entry.parameter()) is None else p.grad for entry in entries]
    with DisableTorchFunction(), torch.no_grad():
        found = [gradient is not None and _is_zero(gradient) for gradient in gradients]
        waiting = [one for one in found if isinstance(one, Tensor)]
        read = iter([bool(one) for one in to_host(waiting)])
        return [next(read) if isinstance(one, Tensor) else one for one in found]


def _is_zero(gradient: Tensor) -> bool | Tensor:
    """Return the answer, or on an accelerator the tensor that has it."""
    try:
        part = gradient if is_plain_float(gradient) else elements(gradient).values
    except NotReadable:
        return False
    if not part.is_cpu:
        return torch.any(part).logical_not()
    if part.dim() and bool(torch.any(part[:1])):
        return False  # which is so of most, and saves looking at the rest
    return not bool(torch.any(part))
