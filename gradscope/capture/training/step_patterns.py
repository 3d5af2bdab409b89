"""Recognises steps that do what an earlier step did, call by call, at the cost of a comparison.

A training does the same in nearly every step: zero, backward, step. Of each sequence of such calls
that was recorded in full, it is known how it goes on; a step that goes along one of them to its end
needs no events of its own. Once a call is another than expected, the step is recorded in full from
there on: what it did before is known from the sequence, and so is what state gradients are in.
"""

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from types import CodeType, FrameType

import torch

from gradscope.capture.source.lines import sequence_number
from gradscope.capture.training.event_log import Event, EventLog
from gradscope.capture.training.gradient_state import GradientState, States
from gradscope.capture.training.locations import Locations
from gradscope.recording.repeated_steps import is_repeated, is_shared

_MOST_NODES = 2_000
"""Of all sequences: a script that does something else in every step is recorded in full."""

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
"""Kinds of events that are calls of the script's; others come along with one."""

_BEFORE_ALL, _AFTER_ODD = -1, -2
"""In place of a sequence: before the first step, and after one that may not be repeated."""

_Key = tuple[str, int, int, int]
"""Kind, code (`id`) and instruction of the call, and what tells calls there apart."""


@dataclass(slots=True, eq=False)
class Position:
    """A place in a sequence of calls: what came before it, and what may come next."""

    events: tuple[Event, ...] = ()
    """Of the call that leads here, and what came along with it."""
    before: "Position | None" = None
    key: _Key | None = None
    """Of the call that leads here."""
    next: dict[_Key, "Position"] = field(default_factory=dict)
    states: States | None = None
    """Of the gradients."""
    has_loss: bool = False
    """Whether the call is a backward from a number that can be read."""
    number: int = 0
    """autograd's number when the call was last made."""
    step: int | None = None
    """The step recorded last whose sequence ends here; None where none does."""
    pattern: int = -1
    """Of a sequence's end: which one it is."""
    by_hand: "Position | None" = None
    """The end of the sequence, where the script itself changes its weights after this call."""


class StepPatterns:
    """The sequences of calls that are known, and where in them the running step is."""

    def __init__(
        self, gradient_state: GradientState, event_log: EventLog, locations: Locations
    ) -> None:
        self._gradient_state, self._event_log, self._locations = (
            gradient_state,
            event_log,
            locations,
        )
        self._roots: dict[int, Position] = {_BEFORE_ALL: Position()}
        """By the sequence of the step before, which decides in what state gradients are."""
        self._patterns: dict[tuple[_Key, ...], int] = {}
        self._end: Position | None = None
        """Where the last step has ended."""
        self._last = _BEFORE_ALL
        """The sequence of the last step."""
        self._thread = threading.get_ident()
        self._passed: dict[int, tuple[CodeType, bool]] = {}
        """By `id` of code: whether a call that it makes is its caller's."""
        self._codes: dict[int, CodeType] = {}
        """Those of keys, which as long as they are held keep their `id`."""
        self._nodes = 0
        self._snapshots: list[States] = []
        """Of the step that is recorded in full: the states after each of its events."""
        self._by_hooks: set[int] = set()
        """Those of its events that happened while a backward ran."""
        self._is_odd = False
        """Whether the step that is recorded did something that may not be repeated unseen."""
        self._is_synced = True
        """Whether the states of gradients are known as they are now."""
        self.last_number = 0
        """autograd's number at the last backward in a step that repeated another."""
        self._backwards: list[Position] = []
        self._is_again = False
        """Whether the last call that was compared is one more of those before it."""
        self.position: Position | None = None
        """Where the running step is; None while it is recorded in full."""
        self.losses: list[float] = []
        """Of the running step."""

    def repeats(self, kind: str, detail: int, frame: FrameType | None) -> Position | None:
        """Return where the step is after a call; None where it is to be recorded in full.

        Args:
            kind: Of the event.
            detail: What tells calls of the kind apart: the optimizer, say.
            frame: Of the caller.
        """
        here = self.position
        if here is None or threading.get_ident() != self._thread:
            return None
        key = self._key_at(kind, detail, frame)
        self._is_again = kind == "grad" and _follows_grad(here, key)
        following = here if self._is_again else here.next.get(key)
        if following is not None:
            self.position = following
            if kind == "backward":
                following.number = self.last_number = sequence_number()
        return following

    def is_grad_again(self, detail: int, frame: FrameType) -> bool:
        """Return whether no other calls came since one of `autograd.grad` at the same place.

        Such calls in a row, as of `gradcheck`, are one event a place, however many they are.
        """
        events = self._event_log.events
        if not events or events[-1].kind != "grad":
            return False
        key = self._key_at("grad", detail, frame)
        row = takewhile(lambda event: event.kind == "grad", reversed(events))
        return any(key == self._key_of(event) for event in row)

    def _key_at(self, kind: str, detail: int, frame: FrameType | None) -> _Key:
        passed = self._passed
        while frame is not None:
            code = frame.f_code
            key = id(code)
            known = passed.get(key) or self._learn(code)
            if not known[1]:
                return kind, key, frame.f_lasti, detail
            frame = frame.f_back
        return kind, 0, 0, detail

    def end_by(self, optimizer: int | None = None) -> Position | None:
        """Return the end of the sequence where an optimizer steps next, wherever that is called.

        Args:
            optimizer: Its index; None for any.
        """
        here = self.position
        for key, following in () if here is None else here.next.items():
            if key[0] == "step" and following.step is not None and optimizer in (None, key[3]):
                self.position = following
                return following
        return None

    def is_here(self) -> bool:
        """Return whether this is the thread that makes the steps."""
        return threading.get_ident() == self._thread

    def _learn(self, code: CodeType) -> tuple[CodeType, bool]:
        if len(self._passed) == _MOST_CODES:  # a script may make new code in every step
            self._passed.clear()
        known = self._passed[id(code)] = (code, self._locations.is_passed_over(code))
        return known

    def forget_last(self) -> None:
        """Take back the last call, which has raised an exception."""
        here = self.position
        if here is not None and not self._is_again:
            self.position = here.before
            if here.has_loss and self.losses:
                self.losses.pop()

    def begin(self, *, may_repeat: bool) -> bool:
        """Begin a step; return whether it may repeat one that is known."""
        root = self._roots.get(self._last)
        self._thread = threading.get_ident()
        if self._snapshots:
            self._snapshots, self._by_hooks = [], set()
        self._is_odd = False
        if self.losses:
            self.losses = []
        self.position = root if may_repeat and root is not None and root.next else None
        return self.position is not None

    def join(self, events: list[Event]) -> bool:
        """Go on as a step that repeats another, if one began with these calls; return whether."""
        here = self._roots.get(self._last)
        for event in events:
            if event.kind in _CALLS and not _is_unseen(event) and here is not None:
                here = here.next.get(self._key_of(event))
        if here is None:
            return False
        self.losses = [float(event.numbers["loss"]) for event in events if "loss" in event.numbers]
        self.position = here
        return True

    def noted(self, event: Event) -> None:
        """Take in an event of a step that is recorded in full."""
        if torch._C._current_graph_task_id() != -1:  # by a hook: it comes along with the backward
            self._by_hooks.add(len(self._snapshots))
        if event.kind.endswith("-error"):  # which no call tells that may come again without it
            self.spoil()
        if len(self._snapshots) < _MOST_NODES:
            self._snapshots.append(self._gradient_state.states())

    def spoil(self) -> None:
        """Take in that the step does something that may not be repeated unseen."""
        self._is_odd = True

    def recorded(self, step: int, events: list[Event]) -> None:
        """Take in a step that was recorded in full, by its events."""
        self._is_synced = True
        if self._is_odd or len(events) != len(self._snapshots) or self._nodes > _MOST_NODES:
            self._last = _AFTER_ODD
            return
        here = self._roots.setdefault(self._last, Position())
        held: list[Event] = []
        keys: list[_Key] = []
        for order, (event, states) in enumerate(zip(events, self._snapshots, strict=True)):
            held.append(event)
            if event.kind in _CALLS and not (_is_unseen(event) or order in self._by_hooks):
                keys.append(self._key_of(event))
                here = self._following(here, keys[-1], tuple(held), states)
                held = []
        if held:
            if held[-1].kind != "step":
                self._last = _AFTER_ODD
                return
            here.by_hand = here.by_hand or Position(before=here)
            here = here.by_hand
            here.events, here.states = tuple(held), self._snapshots[-1]
        here.step = step
        here.pattern = self._patterns.setdefault(tuple(keys), len(self._patterns))
        self._last, self._end = here.pattern, here

    def _key_of(self, event: Event) -> _Key:
        code = event.location.code
        if code is not None:
            self._codes[id(code)] = code
        return event.kind, id(code) if code else 0, event.location.instruction, detail_of(event)

    def _following(
        self, here: Position, key: _Key, events: tuple[Event, ...], states: States
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

    def go_on(self, end: Position) -> bool:
        """Begin the step after one that has gone along a sequence to its end, if it may repeat any.

        Return False, with nothing done, where it may not.
        """
        root = self._roots.get(end.pattern)
        if root is None or not root.next:
            return False
        self.ended(end)
        self.position, self.losses = root, []
        return True

    def ended(self, end: Position) -> None:
        """Take in that the running step has gone along a sequence to its end."""
        self._last, self._end, self._is_synced = end.pattern, end, False

    def catch_up(self) -> bool:
        """Give gradients the states that repeated steps have left; return whether there were any.

        For a step that is recorded in full from its beginning.
        """
        if self._is_synced:
            return False
        if self._end is not None and self._end.states is not None:
            self._gradient_state.restore(self._end.states)
        self._is_synced = True
        return True

    def unfold(self) -> None:
        """Record the running step in full from here on.

        The events of its calls so far are noted, and gradients get the states that they left.
        """
        here, self.position = self.position, None
        if here is None:
            return
        path = _path(here)
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
        loss = next(losses) if _is_read(position, event) else math.nan
        if not math.isnan(loss):
            numbers["loss"] = loss
        location, optimizer = event.location, event.optimizer
        self._event_log.note(
            event.kind, location, numbers, optimizer=optimizer, subject=event.subject
        )
        if position.states is not None and self._snapshots:
            self._snapshots[-1] = position.states

    def numbers(self) -> Iterator[tuple[Event, int]]:
        """Yield the backward calls that are known, with autograd's number at the last of each."""
        for position in self._backwards:
            yield position.events[-1], position.number


def _follows_grad(here: Position | None, key: _Key) -> bool:
    """Return whether a call of `autograd.grad` is among those that lead to a position in a row."""
    while here is not None and here.key is not None and here.key[0] == "grad":
        if here.key == key:
            return True
        here = here.before
    return False


def _path(here: Position) -> list[Position]:
    """Return the calls of a sequence up to a position, in their order."""
    path: list[Position] = []
    step: Position | None = here
    while step is not None and step.before is not None:
        path.append(step)
        step = step.before
    path.reverse()
    return path


def _is_read(position: Position, event: Event) -> bool:
    """Return whether an event has a loss that is read in each step."""
    return position.has_loss and event.kind == "backward"


def _is_unseen(event: Event) -> bool:
    """Return whether an event is of something that the script did by no call that is watched."""
    if event.kind == "step":
        return bool(event.numbers.get("manual"))
    return event.kind == "zero" and event.location.code is None and event.optimizer is None


def detail_of(event: Event) -> int:
    """Return what tells calls of an event's kind apart, at the same place."""
    if event.kind in ("backward", "grad"):
        numbers = event.numbers
        return 2 * int(bool(numbers.get("retain"))) + int(bool(numbers.get("create")))
    return -1 if event.optimizer is None else event.optimizer
