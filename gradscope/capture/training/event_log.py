"""The events since the last step, and the recording that receives them."""

import linecache
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from gradscope.capture.arithmetic import widest
from gradscope.capture.reading import whole
from gradscope.capture.source.lines import Line, shown_file
from gradscope.capture.training.locations import NOWHERE, Location
from gradscope.capture.training.trainer_arguments import trainer_arguments
from gradscope.recording.events import Event as RunEvent
from gradscope.recording.events import Names
from gradscope.recording.evidence.training import LibraryCall, TrainerArgument
from gradscope.recording.records import EventRecord, Site

Number = float | Tensor
"""A tensor if reading it at once would synchronize with a device."""


@dataclass(slots=True)
class Event:
    """An event; it becomes a record together with its step."""

    kind: str
    seconds: float
    location: Location
    numbers: dict[str, Number]
    optimizer: int | None
    subject: str


class Sites:
    """The lines of the recording, each stored once."""

    def __init__(self) -> None:
        self._indices: dict[tuple[int, int], int] = {}
        """By `id` of the code, whose own hash is slow, and line."""
        self._codes: list[CodeType] = []
        self._new: list[Site] = []
        self._taken = 0
        self._calls: dict[int, LibraryCall] = {}
        """By index of a trainer's line."""
        self._new_calls: list[LibraryCall] = []
        self._files: set[str] = set()
        """Files of the user's that have been searched for arguments of trainers."""
        self._new_arguments: list[TrainerArgument] = []

    def index(self, line: Line | None) -> int | None:
        """Return the index of a line in the recording."""
        if line is None:
            return None
        key = (id(line.code), line.number)
        index = self._indices.setdefault(key, len(self._indices))
        if index == self._taken + len(self._new):
            self._new.append(_site(line))
            self._codes.append(line.code)  # its `id` is valid as long as it lives
        return index

    def add_call(self, line: Line | None, caller: Line | None) -> None:
        """Record the user's line that led to a line of a trainer."""
        site, users = self.index(line), self.index(caller)
        if site is None or users is None or site == users or site in self._calls:
            return
        self._calls[site] = LibraryCall(site=site, caller=users)
        self._new_calls.append(self._calls[site])
        if caller is not None:
            self._add_arguments(caller.code)

    def _add_arguments(self, code: CodeType) -> None:
        if code.co_filename in self._files:
            return
        self._files.add(code.co_filename)
        for kind, line in trainer_arguments(code.co_filename):
            site = self.index(line)
            if site is not None:
                self._new_arguments.append(TrainerArgument(kind=kind, site=site))

    def take_arguments(self) -> tuple[TrainerArgument, ...]:
        """Return the arguments of trainers that are new since the last call."""
        new, self._new_arguments = tuple(self._new_arguments), []
        return new

    def take_calls(self) -> tuple[LibraryCall, ...]:
        """Return the calls of trainers that are new since the last call."""
        new, self._new_calls = tuple(self._new_calls), []
        return new

    def take(self) -> tuple[Site, ...]:
        """Return the lines that are new since the last call."""
        new, self._new = tuple(self._new), []
        self._taken += len(new)
        return new


class EventLog:
    """The events since the last step."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.events: list[Event] = []
        self.sites = Sites()
        self.observer: Callable[[Event], None] | None = None
        """Called with each event."""

    def seconds_at(self, moment: float) -> float:
        """Return the seconds from the start to a moment of `time.perf_counter`."""
        return moment - self._began

    def note(
        self,
        kind: str,
        location: Location,
        numbers: dict[str, Number],
        *,
        optimizer: int | None = None,
        subject: str = "",
    ) -> Event:
        """Record an event that happens now."""
        seconds = time.perf_counter() - self._began
        event = Event(kind, seconds, location, numbers, optimizer, subject)
        self.events.append(event)
        if self.observer is not None:
            self.observer(event)
        return event

    def take(self, step: int) -> tuple[EventRecord, ...]:
        """Return the events as records of a step, and start with the next one."""
        events, self.events = self.events, []
        _read_back(events)
        lines = _lines(events)
        for event, line in zip(events, lines, strict=True):
            self.sites.add_call(line, event.location.user)
        return tuple(
            EventRecord(
                step=step,
                order=order,
                kind=event.kind,
                seconds=event.seconds,
                site=self.sites.index(line),
                numbers=tuple((name, float(value)) for name, value in event.numbers.items()),
                optimizer=event.optimizer,
                subject=event.subject,
            )
            for order, (event, line) in enumerate(zip(events, lines, strict=True))
        )


def number(value: object) -> Number | None:
    """Return a value as a number of an event, None if it is not a number."""
    if value is None or type(value) is float:  # the usual cases
        return value
    if isinstance(value, Tensor):
        one = whole(value)
        if one is None or one.numel() != 1 or one.is_complex():
            return None
        # A copy, because the script may write to the tensor before it is read.
        return float(one) if one.is_cpu else one.clone().reshape(())
    return float(value) if isinstance(value, int | float) else None


def unread(value: object) -> Any:  # noqa: ANN401
    """Return a value for a number of an event: it may be a tensor, which is read later."""
    return value


def known(
    kind: Callable[Names, RunEvent], *_: Names.args, **numbers: Names.kwargs
) -> dict[str, Number]:
    """Return the values that are numbers, by name, for an event of a kind that declares them."""
    return {name: read for name, value in numbers.items() if (read := number(value)) is not None}


def _read_back(events: list[Event]) -> None:
    """Read all numbers on a device back at once."""
    waiting = [
        (event, name, value)
        for event in events
        for name, value in event.numbers.items()
        if isinstance(value, Tensor)
    ]
    if not waiting:
        return
    with torch.no_grad():
        device = waiting[0][2].device
        wide = widest(device)
        # Stacked, because each read waits for the device.
        values = torch.stack([value.to(device, wide) for *_, value in waiting]).tolist()
    for (event, name, _), value in zip(waiting, values, strict=True):
        event.numbers[name] = value


def _lines(events: list[Event]) -> list[Line | None]:
    """Return the line of each event: the user's, or a trainer's if the trainer runs the loop."""
    users = {
        user and (id(user.code), user.number)
        for event in events
        if event.location is not NOWHERE and event.kind not in ("carried", "kept")
        for user in (event.location.user,)
    }
    # All events at one user's line: a trainer runs the loop, and its own lines say more.
    if len(users) == 1 and {"backward", "step"} <= {event.kind for event in events}:
        return [event.location.argument or event.location.inner for event in events]
    return [_line(event.location) for event in events]


def _line(location: Location) -> Line | None:
    return location.argument or location.user or location.inner


def _site(line: Line) -> Site:
    file = line.code.co_filename
    return Site(
        file=shown_file(file),
        line=line.number,
        function=line.code.co_qualname,
        source=linecache.getline(file, line.number).strip(),
    )
