"""What the parts of a watch share: what is known of the script by now, and where it is noted."""

import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from gradscope.capture.training.event_log import EventLog, Number
from gradscope.capture.training.gradient_state import SPENT, UNSPENT, Entry, GradientState, Outside
from gradscope.capture.training.guard import Guard
from gradscope.capture.training.locations import NOWHERE, Locations
from gradscope.capture.training.models import Forwards, Models
from gradscope.capture.training.optimizers import Optimizers
from gradscope.capture.training.scopes import Scopes

if TYPE_CHECKING:
    from gradscope.capture.training.by_hand import ByHand
    from gradscope.capture.training.pace import Pace
    from gradscope.capture.training.step_captures import StepCaptures
    from gradscope.capture.training.step_patterns import Position
    from gradscope.capture.training.steps import Steps

OUTSIDE = "outside"
"""The subject of gradients that were zeroed by no call that is watched."""


class _OfThread(threading.local):
    """What every thread has of its own."""

    def __init__(self) -> None:
        self.stepping: list[set[int]] = []


class TrainingState:
    """What is known of the script by now."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.locations = Locations()
        self.gradient_state = GradientState()
        self.event_log = EventLog()
        self.models = Models(guard, self.gradient_state, self.locations, self.event_log.sites)
        self.optimizers = Optimizers(self.gradient_state, self.locations)
        self.scopes = Scopes()
        self._own = _OfThread()
        self.batch = ""
        """The first input of the first model, in words."""
        self.by_hand: ByHand | None = None
        """Writes the steps that the script makes without an optimizer."""
        self.steps: Steps
        """Writes the steps of optimizers."""
        self.captures: StepCaptures | None = None
        """Sees some backward passes closely; None where nobody does."""
        self.pace: Pace
        """Decides how much of each step is recorded."""
        self.step_repeated: Callable[[Position, int | None, object], None]
        """Takes in that the running step has repeated another to its end: with the optimizer's
        index, None where the script changes its weights itself, and its learning rate."""
        self.resumed: Callable[[], None]
        """Prepares to record in full, after steps that were compared alone."""

    @property
    def stepping(self) -> list[set[int]]:
        """Of each optimizer whose step this thread runs, outermost first.

        The entries (by `id`) to which a backward came meanwhile.
        """
        return self._own.stepping

    def repeats(self, kind: str, optimizer: Optimizer | None, frame: FrameType) -> bool:
        """Return whether a call is what the running step is expected to do.

        Else the step is recorded in full from here on.
        """
        patterns = self.pace.patterns
        if patterns.position is None:
            return False
        if self.steps.in_repeated_backward is not None:
            return True
        detail = -1 if optimizer is None else self.optimizers.index_of(optimizer)
        if patterns.position.by_hand is not None:
            self.end_step_by_hand()
        if patterns.repeats(kind, detail, frame) is not None:
            return True
        self.record_in_full()
        return False

    def end_step_by_hand(self) -> None:
        """Take in, before a call, that the script has changed its weights since the last one."""
        position = self.pace.patterns.position
        if position is not None and position.by_hand is not None and self.pace.has_moved():
            self.step_repeated(position.by_hand, None, None)

    def record_in_full(self) -> None:
        """Record the running step in full from here on."""
        if self.pace.is_repeating():
            self.guard.run(self._unfold)

    def _unfold(self) -> None:
        self.pace.unfold()
        self.resumed()
        if self.captures is not None:
            for order, event in enumerate(self.event_log.events):
                if event.kind == "backward":
                    self.captures.backward_repeated(event.location, event.subject, order)

    def take_in(self) -> None:
        """Give models and parameters that are new their names and places in the recording."""
        self.models.take_in(self.optimizers.owner_name)

    @property
    def has_look(self) -> bool:
        """Whether a look waits to be written."""
        return self.captures is not None and self.captures.has_found

    def sync(self, frame: FrameType | None = None) -> None:
        """Take in, and note, what was done to gradients without a call that is watched."""
        outside = self.gradient_state.sync(() if self.by_hand is None else self.by_hand.changed())
        self._note_by_hand(outside.by_hand, frame)
        if outside.removed or outside.zeroed:
            self._note_zeroed(outside)

    def sync_weights(self, frame: FrameType | None = None) -> None:
        """Take in, and note, steps that were made by hand."""
        changed = () if self.by_hand is None else self.by_hand.changed()
        self._note_by_hand(self.gradient_state.note_touched(changed), frame)

    def _note_by_hand(self, entries: list[Entry], frame: FrameType | None) -> None:
        if entries and self.by_hand is not None:
            self.by_hand.note(entries, frame)

    def sync_before_backward(self, frame: FrameType) -> None:
        """Do the same before a backward, where gradients may wait for it."""
        if self.gradient_state.holds(UNSPENT) or self.gradient_state.holds(SPENT):
            self.sync(frame)
            zeroed = self.gradient_state.clear_false_stale()
            if zeroed:
                self._note_zeroed(Outside(zeroed=zeroed))

    def _note_zeroed(self, outside: Outside) -> None:
        numbers: dict[str, Number] = {
            "parameters": float(outside.removed + outside.zeroed),
            "unspent": float(outside.unspent),
            "set_to_none": float(outside.removed > 0),
        }
        self.event_log.note("zero", NOWHERE, numbers, subject=OUTSIDE)

    def take_forwards(self) -> Forwards:
        """Return the calls of models since the last backward, and note those in eval mode."""
        forwards = self.models.take_forwards()
        self.batch = self.batch or forwards.batch
        for mode in forwards.modes.values():
            if mode is not None:
                numbers: dict[str, Number] = {
                    "eval": 1.0,
                    "dropout": float(mode.dropout),
                    "batchnorm": float(mode.batchnorm),
                }
                self.event_log.note("mode", mode.location, numbers, subject=mode.name)
        return forwards

    def came_while_stepping(self, entries: list[Entry]) -> None:
        """Take in that a backward ran within a step, as by a closure, which uses its gradients."""
        if self.stepping:
            self.stepping[-1].update(map(id, entries))
            self.gradient_state.spend(entries)
