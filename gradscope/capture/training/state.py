"""State shared by the parts of a recorded training, and the log of its events."""

import threading
from collections.abc import Callable, Iterable
from types import FrameType

from torch.optim import Optimizer

from gradscope.capture.training.batches import Batches
from gradscope.capture.training.captured_lines import UnusedDerivatives, UnvaryingResults
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.gradient_state import SPENT, UNSPENT, Entry, GradientState, Outside
from gradscope.capture.training.guard import Guard
from gradscope.capture.training.locations import NOWHERE, Location, Locations
from gradscope.capture.training.models.model_records import Forwards
from gradscope.capture.training.models.models import Models
from gradscope.capture.training.optimizers import Optimizers
from gradscope.capture.training.pacing.pace import Pace
from gradscope.capture.training.pacing.positions import Position
from gradscope.capture.training.shared_weights import SharedWeights
from gradscope.capture.training.step_captures import ManualSteps, RankObserver, StepCaptures
from gradscope.capture.training.steps.update_lines import erasures, only_line_of
from gradscope.capture.training.target_copies import StillTargets, WrongAverages
from gradscope.recording.events import OUTSIDE, ModeEvent, ZeroEvent, named
from gradscope.recording.evidence.training import ClipScope
from gradscope.recording.meta import Header

_MOST = 1_000_000
"""Maximum number of members of all sets. A script that clips a new set every time needs none."""


class Scopes:
    """Every set of parameters that was clipped, each once."""

    def __init__(self) -> None:
        self._locations: dict[tuple[int, ...], int] = {}
        """By `id` of the entries, which the sets keep alive."""
        self._sets: list[tuple[Entry, ...]] = []
        self._taken = self._members = 0

    def location(self, entries: Iterable[Entry]) -> int | None:
        """Return a set's index in the recording; None for an empty set or beyond the maximum."""
        held = tuple(entries)
        key = tuple(map(id, held))
        if key in self._locations or not key or self._members + len(key) > _MOST:
            return self._locations.get(key)
        self._members += len(key)
        self._locations[key] = len(self._sets)
        self._sets.append(held)
        return self._locations[key]

    def take(self) -> tuple[ClipScope, ...]:
        """Return the sets that are new since the last call; their parameters are recorded."""
        new, self._taken = self._sets[self._taken :], len(self._sets)
        return tuple(
            ClipScope(
                parameters=tuple(
                    sorted(entry.index for entry in entries if entry.index is not None)
                )
            )
            for entries in new
        )


_UNKNOWN = -2
"""Stands for an optimizer that was not observed before: no known call is one of it."""


class _OfThread(threading.local):
    """State of each thread."""

    def __init__(self) -> None:
        self.stepping: list[set[int]] = []


class TrainingState:
    """State of the training so far."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.locations = Locations()
        self.gradient_state = GradientState()
        self.event_log = EventLog()
        self.batches = Batches(guard)
        self.models = Models(
            guard,
            self.gradient_state,
            self.locations,
            self.event_log.sites,
            self.batches.model_got,
        )
        self.optimizers = Optimizers(self.gradient_state, self.locations)
        self.scopes = Scopes()
        self.shared_weights = SharedWeights(guard, self.locations, self.event_log)
        self.unvarying_results = UnvaryingResults(self.event_log)
        self.unused_derivatives = UnusedDerivatives(self.event_log)
        self.wrong_averages = WrongAverages(self.event_log)
        self.still_targets = StillTargets(self.gradient_state, self.event_log)
        self._own = _OfThread()
        self._erasing_lines: dict[tuple[str, ...], Location] = {}
        """By files of the callers: the line that sets gradients by hand."""
        self.batch = ""
        """Description of the first input of the first model."""
        self.by_hand: ManualSteps | None = None
        """Writes the manual steps of a script without an optimizer."""
        self.steps_in_repeated_backward: int | None = None
        """Number of steps by hooks of a backward that repeats another; None if none runs."""
        self.captures: StepCaptures | None = None
        """Captures some backward passes in detail; None if captures are off."""
        self.pace: Pace
        """Decides how much of each step is recorded."""
        self.take_repeated: Callable[[Position, int | None, object], None]
        """Called by `Guard.quickly` when the running step has repeated another to its end, with the
        optimizer's index (None for a manual step) and its learning rate."""
        self.after_step: Callable[[], None] | None = None
        """Called after each step, outside of the guard: it may raise. None if nobody waits."""
        self.ranks: RankObserver
        """Records what this process does with the other ranks of its job."""
        self.flush_ranks: Callable[[], None]
        """Writes what was recorded of them."""
        self.resumed: Callable[[], None]
        """Called before full recording resumes after steps that were only compared."""

    @property
    def stepping(self) -> list[set[int]]:
        """For each optimizer whose step this thread runs, outermost first.

        The entries (by `id`) that a backward reached meanwhile.
        """
        return self._own.stepping

    def repeats(self, kind: str, optimizer: Optimizer | None, frame: FrameType) -> bool:
        """Return whether a call is what the running step is expected to do.

        Otherwise the rest of the step is recorded in full.
        """
        patterns = self.pace.patterns
        here = patterns.position
        if here is None:
            return False
        if self.steps_in_repeated_backward is not None:
            return True
        detail = -1
        if optimizer is not None:
            known = self.optimizers.own(optimizer)
            detail = _UNKNOWN if known is None else known.index
        if here.by_hand is not None:
            self.end_step_by_hand()
        if patterns.repeats(kind, detail, frame) is not None:
            return True
        self.record_in_full()
        return False

    def end_step_by_hand(self) -> None:
        """Record, before a call, that the script has changed its weights since the last call."""
        position = self.pace.patterns.position
        sentinels = self.pace.sentinels
        if position is not None and position.by_hand is not None and sentinels.has_moved():
            self.step_repeated(position.by_hand, None, None)

    def step_repeated(self, end: Position, optimizer: int | None, rate: object) -> None:
        """Process the end of a step that repeated another.

        Args:
            end: Position of the step's end.
            optimizer: Index of the optimizer that stepped; None for a manual step.
            rate: Learning rate.
        """
        self.guard.quickly(self.take_repeated, end, optimizer, rate)
        if self.after_step is not None:
            self.after_step()

    def record_in_full(self) -> None:
        """Record the rest of the running step in full."""
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
        """Assign names and indices in the recording to new models and parameters."""
        self.models.take_in(self.optimizers.owner_name)

    @property
    def has_captured_step(self) -> bool:
        """Whether a captured step waits to be written."""
        return self.captures is not None and self.captures.has_found

    def sync(self, frame: FrameType | None = None) -> None:
        """Record changes of gradients made outside of observed calls."""
        outside = self.gradient_state.sync(() if self.by_hand is None else self.by_hand.changed())
        self._note_by_hand(outside.by_hand, frame)
        if outside.removed or outside.zeroed:
            self._note_zeroed(outside, frame)

    def sync_weights(self, frame: FrameType | None = None) -> None:
        """Record manual steps."""
        changed = () if self.by_hand is None else self.by_hand.changed()
        self._note_by_hand(self.gradient_state.note_touched(changed), frame)

    def _note_by_hand(self, entries: list[Entry], frame: FrameType | None) -> None:
        if entries and self.by_hand is not None:
            self.by_hand.note(entries, frame)

    def sync_before_backward(self, frame: FrameType) -> None:
        """Do both before a backward, if gradients may be waiting for a step."""
        self.spend_evaluated()
        # The first backward, and one after `zero_grad`, have nothing to compare.
        if self.gradient_state.holds(UNSPENT) or self.gradient_state.holds(SPENT):
            self.sync(frame)
            zeroed = self.gradient_state.clear_false_stale()
            if zeroed:
                self._note_zeroed(Outside(zeroed=zeroed), frame)

    def _note_zeroed(self, outside: Outside, frame: FrameType | None) -> None:
        numbers = named(
            ZeroEvent,
            parameters=float(outside.removed + outside.zeroed),
            unspent=float(outside.unspent),
            set_to_none=float(outside.removed > 0),
        )
        # Only what no step has used is ever reported with its line.
        location = self._erasing_line(frame) if outside.unspent else NOWHERE
        self.event_log.note("zero", location, numbers, subject=OUTSIDE)

    def _erasing_line(self, frame: FrameType | None) -> Location:
        """Return the line that sets gradients by hand, if a file of the callers has only one."""
        files = tuple(one.f_code.co_filename for one in self.locations.users(frame))
        if files not in self._erasing_lines:
            self._erasing_lines[files] = only_line_of(erasures, files)
        return self._erasing_lines[files]

    def take_forwards(self) -> Forwards:
        """Return the calls of models since the last backward, and record those in eval mode."""
        forwards = self.models.take_forwards()
        self.batch = self.batch or forwards.batch
        for mode in forwards.modes.values():
            if mode is not None:
                numbers = named(
                    ModeEvent,
                    eval=1.0,
                    dropout=float(mode.dropout),
                    batchnorm=float(mode.batchnorm),
                )
                self.event_log.note("mode", mode.location, numbers, subject=mode.name)
        return forwards

    def came_while_stepping(self, entries: list[Entry]) -> None:
        """Record a backward within a step, for example by a closure, which uses its gradients."""
        if self.stepping:
            # By the innermost step: a nested one uses its own backward.
            self.stepping[-1].update(map(id, entries))

    def spend_evaluated(self) -> None:
        """Mark the gradients of a closure's last evaluation as used: another one begins."""
        if self.stepping:
            self.spend_among(self.stepping[-1])

    def spend_among(self, ids: set[int]) -> None:
        """Mark gradients as used, by the `id` of their entries."""
        if ids:
            self.gradient_state.spend(one for one in self.gradient_state.entries if id(one) in ids)


MakeCaptures = Callable[[TrainingState, Header], StepCaptures]
