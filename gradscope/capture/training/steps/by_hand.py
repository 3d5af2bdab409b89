"""Recognizes manual steps such as `p -= lr * p.grad` of scripts without an optimizer."""

import math
from collections.abc import Callable
from types import FrameType

import torch
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.statistics import norms
from gradscope.capture.training.event_log import Number, known, unread
from gradscope.capture.training.gradient_state import UNSPENT, Entry
from gradscope.capture.training.graph_facts import leaves
from gradscope.capture.training.guard import postponed_signals
from gradscope.capture.training.history.references import name_of
from gradscope.capture.training.locations import NOWHERE, Location
from gradscope.capture.training.optimizers import Known, describe, learning_rate
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.measurements import GradientStorage, Measured
from gradscope.capture.training.steps.update_lines import lost_updates, only_line_of, updates
from gradscope.capture.training.steps.writer import Finished, StepWriter
from gradscope.recording.events import DroppedUpdateEvent, StepEvent, named

OPTIMIZER, COMPILED = "steps by hand", "compiled steps"
"""Names shown in place of an optimizer's."""

_LOOSE_SEARCHED_FIRST, _LOOSE_SEARCHED_EVERY = 5, 20
"""Number of first graphs searched for parameters outside modules, and the interval of later
searches, if there are no models."""

_MOST_LOOSE = 1_000


class ByHand:
    """Writes the manual steps of a script that has neither made nor called an optimizer.

    It also writes those of an optimizer with a compiled step, which are found in the same way.

    Such a step is found when the next backward starts, or gradients are zeroed. The gradients may
    be gone by then, so they are measured right after a backward or a clip.

    Args:
        training: State of the training.
        writer: Receives each step.
        gradient_storage: Which gradients are to be stored. Those of manual steps cannot be.
        ended: Called after each step that was written.
    """

    def __init__(
        self,
        training: TrainingState,
        writer: StepWriter,
        *,
        gradient_storage: GradientStorage,
        ended: Callable[[], None],
    ) -> None:
        self._training, self._writer, self._ended = training, writer, ended
        self._is_to_keep = gradient_storage.mode != "none"
        self._measured: list[Measured] = []
        self._graphs = 0
        self._has_written = False
        self._location: Location | None = None
        """Location of the statement that changes the weights."""
        self._files: dict[str, None] = {}
        """Files of the functions that called the first backward passes."""

    @property
    def is_on(self) -> bool:
        """Whether the script has no known optimizer, or one whose steps are invisible."""
        return self._is_compiled or not self._training.optimizers.known

    @property
    def _is_compiled(self) -> bool:
        return self._training.gradient_state.steps_are_unseen

    def find_loose(self, root: Node, frame: FrameType) -> None:
        """Add the leaves of a graph that are in no model, if the script has no model."""
        training = self._training
        self._graphs += 1
        is_due = self._graphs <= _LOOSE_SEARCHED_FIRST or self._graphs % _LOOSE_SEARCHED_EVERY == 0
        if is_due and self.is_on:
            users = training.locations.users(frame)
            self._files |= dict.fromkeys(one.f_code.co_filename for one in users)
        if not is_due or not self.is_on or training.models.modules:
            return
        frames = training.locations.users(frame)
        for leaf in leaves(root):
            is_new = training.gradient_state.entry(leaf) is None
            if is_new and len(training.gradient_state.entries) < _MOST_LOOSE:
                name = name_of(leaf, frames)
                known = {entry.name for entry in training.gradient_state.entries}
                # A variable that gets a new value in every step is not a trained parameter.
                if (
                    name
                    and name not in known
                    and (entry := training.gradient_state.add(leaf)) is not None
                ):
                    entry.name = name

    def measure(self) -> None:
        """Measure the gradients that a step would use now."""
        self._measured = self._unspent() if self.is_on else []

    def left(self) -> list[Measured]:
        """Return the gradients that backward left to a script that ends without any step."""
        if self._writer.steps:
            return []
        found = self._measured or self._unspent()
        return found and [*found, *self._without_gradient({id(one.entry) for one in found})]

    def _without_gradient(self, seen: set[int]) -> list[Measured]:
        """Return the parameters without a gradient, besides those whose gradients were measured."""
        entries = [
            entry for entry in self._training.gradient_state.entries if id(entry) not in seen
        ]
        found = [(e, p) for e in entries if (p := e.parameter()) is not None and p.grad is None]
        with DisableTorchFunction(), torch.no_grad():
            weights = norms([p for _, p in found])
        return [
            Measured(entry, weight, None, parameter.numel(), parameter.requires_grad)
            for (entry, parameter), weight in zip(found, weights, strict=True)
        ]

    def _unspent(self) -> list[Measured]:
        found = [
            (entry, parameter)
            for entry in self._training.gradient_state.entries
            if entry.state == UNSPENT and (parameter := entry.parameter()) is not None
        ]
        # Gradients are paired with parameters by position: one that is gone would shift the others.
        gradients = [p.grad for _, p in found if p.grad is not None]
        if len(gradients) != len(found):
            found, gradients = [], []
        with DisableTorchFunction(), torch.no_grad():
            # Separate, because the rounding of a norm depends on what is measured together with it.
            weights, values = norms([p for _, p in found]), norms(gradients)
        return [
            Measured(entry, weight, gradient, parameter.numel(), parameter.requires_grad)
            for (entry, parameter), weight, gradient in zip(found, weights, values, strict=True)
            if gradient is not None
        ]

    def changed(self) -> list[Entry]:
        """Return the parameters whose values differ from those at the measurement.

        `p.data -= lr * p.grad` does not change the version.
        """
        if not self.is_on or not any(one.entry.state == UNSPENT for one in self._measured):
            return []
        parameters = [p for one in self._measured if (p := one.entry.parameter()) is not None]
        # Norms are paired by position: one that is gone would shift the others.
        if len(parameters) != len(self._measured):
            return []
        # Norms instead of versions, which changes through `.data` leave alone.
        with DisableTorchFunction(), torch.no_grad():
            now = norms(parameters)
        pairs = zip(self._measured, now, strict=True)
        return [
            one.entry
            for one, norm in pairs
            if norm is not None and one.weight is not None and _differ(norm, one.weight)
        ]

    def finish(self) -> None:
        """Record the last step, which no backward follows.

        If the parameters are gone, for example with the function that trained them, the step counts
        as made if earlier ones were.
        """
        self._training.sync_weights()
        gone = [
            one.entry
            for one in self._measured
            if one.entry.state == UNSPENT and one.entry.parameter() is None
        ]
        if gone and self._has_written:
            self.note(gone, None)
        elif not self._writer.steps and not self._training.optimizers.known:
            self._note_dropped()

    def _note_dropped(self) -> None:
        """Record the line of an update that changes nothing, of a script without any step."""
        line = only_line_of(lost_updates, self._files)
        if line is not NOWHERE:
            entries = [e for e in self._training.gradient_state.entries if e.state == UNSPENT]
            numbers = named(DroppedUpdateEvent, parameters=float(len(entries)))
            self._training.event_log.note("dropped-update", line, numbers)

    def note(self, entries: list[Entry], frame: FrameType | None) -> None:
        """Record that the script changed parameters whose gradients no step had used."""
        numbers = named(StepEvent, manual=1.0, parameters=float(len(entries)))
        moved = set(map(id, entries))
        measured = [one for one in self._measured if id(one.entry) in moved]
        self._measured = []
        if not self.is_on or not measured:
            self._training.event_log.note("step", NOWHERE, numbers)
            return
        present = [one.gradient for one in measured if one.gradient is not None]
        numbers |= named(
            StepEvent,
            with_gradient=float(len(present)),
            fresh=float(len(present)),
            norm=math.hypot(*present),
            nonfinite=float(sum(not math.isfinite(norm) for norm in present)),
        )
        one = self._compiled_optimizer(moved)
        name = self._note_by_hand(numbers, frame) if one is None else self._note_of(one, numbers)
        first = measured[0].entry.parameter()
        if first is not None:
            self._training.pace.sentinels.watch_weight(first)
        is_due = self._training.pace.measures
        self._has_written = True
        if self._is_to_keep:
            self._writer.skip(f"the elements of gradients of {name}", "no optimizer is given them")
        location = 0 if one is None else one.index
        # A handler that raises in between would leave a step written and not counted.
        with postponed_signals(self._training.guard.later):
            self._writer.write(Finished(name, measured if is_due else [], location))
            self._ended()

    def _compiled_optimizer(self, moved: set[int]) -> Known | None:
        """Return the only optimizer that has all parameters changed by a compiled step."""
        optimizers = self._training.optimizers.known if self._is_compiled else []
        alive = [one for one in optimizers if one.optimizer() is not None]
        owners = [one for one in alive if moved <= set(map(id, one.entries))]
        return owners[0] if len(owners) == 1 else None

    def _note_of(self, one: Known, numbers: dict[str, Number]) -> str:
        """Record a step of an optimizer made by compiled code; return its description.

        Like a manual step it is found late, so events in between do not indicate a wrong order.
        """
        optimizer = one.optimizer()
        total = float(len(one.entries))
        without = total - numbers[StepEvent.with_gradient.name]
        numbers |= named(StepEvent, parameters=total, stale=0.0, none=unread(without))
        numbers |= known(StepEvent, lr=unread(optimizer and learning_rate(optimizer)))
        self._training.event_log.note(
            "step", NOWHERE, numbers, optimizer=one.index, subject=one.name
        )
        return COMPILED if optimizer is None else describe(optimizer)

    def _note_by_hand(self, numbers: dict[str, Number], frame: FrameType | None) -> str:
        if self._location is None:
            frames = self._training.locations.users(frame)
            self._location = only_line_of(updates, (one.f_code.co_filename for one in frames))
        self._training.event_log.note("step", self._location, numbers)
        return COMPILED if self._is_compiled else OPTIMIZER


def _differ(norm: float, other: float) -> bool:
    return norm != other and not (math.isnan(norm) and math.isnan(other))
