"""A training run as far as it has gone."""

from collections import defaultdict, deque

from gradscope.analysis.live_layers import LayerNorms
from gradscope.analysis.live_track import Track
from gradscope.analysis.run_optimizers import first_alike
from gradscope.recording.growing import Growth
from gradscope.recording.records import EventRecord

_RECENT = 5.0
"""Seconds over which the speed is told."""


class LiveRun:
    """Takes in what a recording grows by.

    Args:
        name: Of what is run.
    """

    def __init__(self, name: str) -> None:
        self.name, self.root = name, ""
        self.steps = 0
        """Of all optimizers."""
        self.last_step = 0
        self.seconds = 0.0
        """From the start of the recording to the last step."""
        self.is_over = False
        """Whether nothing more is recorded."""
        self.tracks: dict[int | None, Track] = {}
        """By optimizer, those that made steps first."""
        self.layers = LayerNorms()
        self._passed: deque[tuple[float, int]] = deque()
        """At which second how many steps had been made."""

    @property
    def speed(self) -> float | None:
        """Steps a second in the last seconds; None where that tells nothing."""
        if not self._passed:
            return None
        (start, before), (end, now) = self._passed[0], self._passed[-1]
        return (now - before) / (end - start) if end > start else None

    def add(self, growth: Growth) -> None:
        """Take in what is new."""
        self.root = growth.header.target.root
        self.is_over = growth.header.finished
        events = defaultdict[int, list[EventRecord]](list)
        for event in growth.events:
            events[event.step].append(event)
        alike = first_alike(growth.optimizers)
        for step in growth.steps:
            if step.optimizer is None:
                continue  # what led to no step
            made = next((one for one in events[step.index] if one.kind == "step"), None)
            place = None if made is None else made.optimizer
            if place is not None and place < len(alike):
                place = alike[place]
            track = self.tracks.setdefault(place, Track())
            track.add(step, events[step.index])
            self.steps, self.last_step = self.steps + 1, step.index
            if made is not None:
                self._pass(made.seconds)
        for place, track in self.tracks.items():
            if place is not None and place < len(growth.optimizers):
                record = growth.optimizers[place]
                track.name = "" if record.name == record.class_name else record.name
        self.layers.add(self.last_step, growth)

    def _pass(self, seconds: float) -> None:
        self.seconds = seconds
        self._passed.append((seconds, self.steps))
        while len(self._passed) > 2 and self._passed[1][0] < seconds - _RECENT:
            self._passed.popleft()
