"""Recognizes repeated steps call by call, at the cost of a comparison.

A training does the same in nearly every step: zero, backward, step. Each sequence of calls that was
recorded in full is known. A step that follows one of them to its end needs no events of its own.
After the first unexpected call, the step is recorded in full: its earlier events and the state of
gradients are known from the sequence.
"""

import math
from collections.abc import Iterator
from itertools import takewhile
from threading import get_ident
from types import CodeType, FrameType

import torch

from gradscope.capture.training.event_log import Event, EventLog
from gradscope.capture.training.gradient_state import GradientState, States
from gradscope.capture.training.locations import Locations
from gradscope.capture.training.pacing.positions import (
    Key,
    Position,
    detail_of,
    follows_grad,
    has_read_loss,
    is_unseen,
    path_to,
)
from gradscope.recording.events import BackwardEvent, named
from gradscope.recording.repetitions import is_repeated, is_shared

_MOST_NODES = 2_000
"""Maximum size of all sequences. A script without repetitions is recorded in full."""

_MOST_CODES = 10_000

_CALLS = frozenset(
    {
        "backward",
        "clip-norm",
        "clip-value",
        "epoch",
        "grad",
        "scaler-step",
        "scaler-update",
        "scheduler",
        "step",
        "unscale",
        "zero",
    }
)
"""Kinds of events that are calls of the script; others accompany one."""

_BEFORE_ALL, _AFTER_ODD = -1, -2
"""States without a sequence: before the first step, and after one that must not be repeated."""


class StepPatterns:
    """The known sequences of calls, and the running step's position."""

    def __init__(
        self, gradient_state: GradientState, event_log: EventLog, locations: Locations
    ) -> None:
        self._gradient_state, self._event_log, self._locations = (
            gradient_state,
            event_log,
            locations,
        )
        self._roots: dict[int, Position] = {_BEFORE_ALL: Position()}
        """By the sequence of the previous step, which determines the states of gradients."""
        self._patterns: dict[tuple[Key, ...], int] = {}
        self._end: Position | None = None
        """Position at which the last step ended."""
        self._last = _BEFORE_ALL
        """Sequence of the last step."""
        self.thread = get_ident()
        """Thread that makes the steps."""
        self._passed: dict[int, CodeType] = {}
        """By `id`: code whose calls count as its caller's. Code objects compare by their bytecode,
        which is slow: `id` stands for identity."""
        self._callers: dict[int, CodeType] = {}
        """By `id`: code whose calls are its own."""
        self._codes: dict[int, CodeType] = {}
        """Codes of keys, kept alive so that their `id` stays valid."""
        self._nodes = 0
        self._snapshots: list[States] = []
        """States after each event of the step that is recorded in full."""
        self._by_hooks: set[int] = set()
        """Events of the step that happened during a backward."""
        self._is_odd = False
        """Whether the recorded step did something that must not be repeated unrecorded."""
        self._is_synced = True
        """Whether the known states of gradients are current."""
        self.last_number = 0
        """Sequence number at the last backward in a step that repeated another, set with that of
        its position."""
        self._backwards: list[Position] = []
        self._is_again = False
        """Whether the last compared call of `autograd.grad` repeats the ones before it."""
        self._last_grad: Event | None = None
        self._grad_keys: set[Key] = set()
        """The last recorded call of `autograd.grad`, and the keys of its series."""
        self.position: Position | None = None
        """Position of the running step; None while it is recorded in full."""
        self.losses: list[float] = []
        """Losses of the running step."""

    def repeats(self, kind: str, detail: int, frame: FrameType) -> Position | None:
        """Return the position after a call; None if the step is to be recorded in full.

        Args:
            kind: Kind of the event.
            detail: Separates calls of the kind, for example by optimizer.
            frame: Frame of the caller.
        """
        here = self.position
        # A call of another thread is none of the step's, and positions have no lock.
        if here is None or get_ident() != self.thread:
            return None
        # The usual call comes from code that is known: nothing is called to find that out.
        passed, caller = self._passed, frame
        while id(caller.f_code) in passed and (outer := caller.f_back) is not None:
            caller = outer
        key = (kind, id(caller.f_code), caller.f_lasti, detail)
        following = here.next.get(key)
        if following is None or kind == "grad":
            key = self._key_at(kind, detail, caller)
            self._is_again = kind == "grad" and follows_grad(here, key)
            following = here if self._is_again else here.next.get(key)
        if following is not None:
            self.position = following
        return following

    def is_grad_again(self, detail: int, frame: FrameType) -> bool:
        """Return whether the last calls were all of `autograd.grad` at the same location.

        A series of such calls, as in `gradcheck`, is one event per location.
        """
        events = self._event_log.events
        if not events or events[-1].kind != "grad":
            return False
        if self._last_grad is not events[-1]:
            self._last_grad = events[-1]
            row = takewhile(lambda event: event.kind == "grad", reversed(events))
            self._grad_keys = set(map(self._key_of, row))
        return self._key_at("grad", detail, frame) in self._grad_keys

    def _key_at(self, kind: str, detail: int, frame: FrameType | None) -> Key:
        while frame is not None:
            code = frame.f_code
            if not self._is_passed(code):
                return kind, id(code), frame.f_lasti, detail
            frame = frame.f_back
        return kind, 0, 0, detail

    def end_by(self, optimizer: int | None = None) -> Position | None:
        """Return the end of the sequence if an optimizer steps next, wherever it is called.

        Args:
            optimizer: Index of the optimizer; None for any.
        """
        here = self.position
        for key, following in () if here is None else here.next.items():
            # Frames differ when a scaler or a trainer makes the same step: only the optimizer
            # counts.
            if key[0] == "step" and following.step is not None and optimizer in (None, key[3]):
                self.position = following
                return following
        return None

    def is_here(self) -> bool:
        """Return whether this is the thread that makes the steps."""
        return get_ident() == self.thread

    def _is_passed(self, code: CodeType) -> bool:
        """Return whether calls by some code count as its caller's."""
        key = id(code)
        if key in self._passed:
            return True
        if key in self._callers:
            return False
        is_passed = self._locations.is_passed_over(code)
        known = self._passed if is_passed else self._callers
        if len(known) == _MOST_CODES:  # a script may create new code in every step
            known.clear()
        known[key] = code
        return is_passed

    def forget_last(self) -> None:
        """Take back the last call, which raised an exception."""
        here = self.position
        is_grad = here is not None and here.key is not None and here.key[0] == "grad"
        if here is not None and not (is_grad and self._is_again):
            self.position = here.before
            if here.has_loss and self.losses:
                self.losses.pop()

    def begin(self, *, may_repeat: bool) -> bool:
        """Start a step; return whether it may repeat a known one."""
        root = self._roots.get(self._last)
        self.thread = get_ident()
        if self._snapshots:
            self._snapshots, self._by_hooks = [], set()
        self._is_odd = False
        if self.losses:
            self.losses = []
        self.position = root if may_repeat and root is not None and root.next else None
        if self.position is not None and self._end is not None and self._end.pattern == self._last:
            self._end.following = root
        return self.position is not None

    def join(self, events: list[Event]) -> bool:
        """Continue as a repetition of a known step that starts with these calls; return whether."""
        here = self._roots.get(self._last)
        for event in events:
            if event.kind in _CALLS and not is_unseen(event) and here is not None:
                here = here.next.get(self._key_of(event))
        if here is None:
            return False
        self.losses = [float(event.numbers["loss"]) for event in events if "loss" in event.numbers]
        self.position = here
        return True

    def noted(self, event: Event) -> None:
        """Add an event of a step that is recorded in full."""
        if torch._C._current_graph_task_id() != -1:  # by a hook: it accompanies the backward
            self._by_hooks.add(len(self._snapshots))
        if event.kind.endswith("-error"):  # no call shows whether it happens again
            self.spoil()
        if len(self._snapshots) < _MOST_NODES:
            self._snapshots.append(self._gradient_state.states())

    def spoil(self) -> None:
        """Mark the step as one that must not be repeated unrecorded."""
        self._is_odd = True

    def recorded(self, step: int, events: list[Event]) -> None:
        """Add the sequence of a step that was recorded in full."""
        self._is_synced = True
        # Without a snapshot for each event, gradients could not be restored at a call in between.
        if self._is_odd or len(events) != len(self._snapshots) or self._nodes > _MOST_NODES:
            self._last = _AFTER_ODD
            return
        here = self._roots.setdefault(self._last, Position())
        held: list[Event] = []
        keys: list[Key] = []
        for order, (event, states) in enumerate(zip(events, self._snapshots, strict=True)):
            held.append(event)
            if event.kind in _CALLS and not (is_unseen(event) or order in self._by_hooks):
                keys.append(self._key_of(event))
                here = self._following(here, keys[-1], tuple(held), states)
                held = []
        if held:
            # Only a manual step may end a sequence without a call of its own.
            if held[-1].kind != "step":
                self._last = _AFTER_ODD
                return
            here.by_hand = here.by_hand or Position(before=here)
            here = here.by_hand
            here.events, here.states = tuple(held), self._snapshots[-1]
        here.step = step
        # The sequence alone decides, so that steps with other numbers share what follows them.
        here.pattern = self._patterns.setdefault(tuple(keys), len(self._patterns))
        self._last, self._end = here.pattern, here

    def _key_of(self, event: Event) -> Key:
        code = event.location.code
        if code is not None:
            self._codes[id(code)] = code
        return event.kind, id(code) if code else 0, event.location.instruction, detail_of(event)

    def _following(
        self, here: Position, key: Key, events: tuple[Event, ...], states: States
    ) -> Position:
        following = here.next.get(key)
        if following is None:
            following = here.next[key] = Position(before=here, key=key)
            self._nodes += 1
            if key[0] == "backward":
                self._backwards.append(following)
        following.events, following.states = events, states
        following.has_loss = "loss" in events[-1].numbers
        return following

    def ended(self, end: Position) -> None:
        """Finish a step that followed a sequence to its end."""
        self._last, self._end, self._is_synced = end.pattern, end, False
        self._is_odd = False

    def catch_up(self) -> bool:
        """Set gradients to the states left by repeated steps; return whether there were any.

        It precedes a step that is recorded in full from its start.
        """
        if self._is_synced:
            return False
        if self._end is not None and self._end.states is not None:
            self._gradient_state.restore(self._end.states)
        self._is_synced = True
        return True

    def unfold(self) -> None:
        """Record the rest of the running step in full.

        The events of its calls so far are recorded, and gradients get the resulting states.
        """
        here, self.position = self.position, None
        if here is None:
            return
        path = path_to(here)
        losses = iter(self.losses)
        for position in path:
            for event in position.events:
                if is_repeated(event.kind):
                    self._note_again(position, event, losses)
        if not path:
            self.catch_up()
        elif here.states is not None:
            self._gradient_state.restore(here.states)
        self._is_synced = True

    def _note_again(self, position: Position, event: Event, losses: Iterator[float]) -> None:
        numbers = {
            name: value for name, value in event.numbers.items() if is_shared(event.kind, name)
        }
        loss = next(losses) if has_read_loss(position, event) else math.nan
        if not math.isnan(loss):
            numbers |= named(BackwardEvent, loss=loss)
        location, optimizer = event.location, event.optimizer
        self._event_log.note(
            event.kind, location, numbers, optimizer=optimizer, subject=event.subject
        )
        if position.states is not None and self._snapshots:
            self._snapshots[-1] = position.states

    def steps(self) -> set[int]:
        """Return the recorded steps that further ones may repeat."""
        found: set[int] = set()
        waiting = list(self._roots.values())
        while waiting:
            here = waiting.pop()
            waiting += here.next.values()
            if here.by_hand is not None:
                waiting.append(here.by_hand)
            if here.step is not None:
                found.add(here.step)
        return found

    def numbers(self) -> Iterator[tuple[Event, int]]:
        """Yield the known backward calls, with the sequence number at the last of each."""
        for position in self._backwards:
            yield position.events[-1], position.number
