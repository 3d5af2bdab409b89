"""Measures what ranks compare, and holds what was observed of a rank until it is written."""

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import FrameType

import torch
from torch import Tensor, nn

from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import Line
from gradscope.capture.statistics import norms
from gradscope.capture.training.event_log import Sites
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.locations import Location
from gradscope.capture.training.step_captures import Taken
from gradscope.recording.evidence.ranks import RankEvent

_MOST_ELEMENTS = 4_096
"""Number of elements of each tensor that a digest reads."""

_MOST_TENSORS = 8

_MOST_ROWS, _ROW_ELEMENTS = 64, 1_024
"""Number of rows of which each has a digest, and of evenly spread elements that it reads."""

_LEAST_ELEMENTS = 4
"""Minimum number of elements of a row. Shorter ones may be equal by chance."""
_SAME = 1e-3
"""Relative difference up to which norms count as equal."""


def digest(tensors: Iterable[Tensor]) -> str | None:
    """Return a digest of the first tensors of a batch; None if one of them cannot be read."""
    found = 0
    count = 0
    with torch.no_grad():
        for tensor in tensors:
            if count == _MOST_TENSORS:
                break
            if not is_plain(tensor) or tensor.is_complex():
                return None
            count += 1
            part = tensor.detach().flatten()[:_MOST_ELEMENTS].cpu().contiguous()
            # Not `hash`: Python salts it differently in every process, and ranks compare these.
            found = zlib.crc32(f"{part.dtype}{tuple(tensor.shape)}".encode(), found)
            if part.numel():
                # As bytes, because NumPy has no bfloat16.
                found = zlib.crc32(part.view(torch.uint8).numpy().tobytes(), found)
    return f"{found:08x}" if count else None


def row_digests(tensor: Tensor) -> tuple[int, ...]:
    """Return a digest of each of the first rows of a batch; empty if it has no rows to compare."""
    if not is_plain(tensor) or tensor.is_complex() or tensor.dim() < 2 or not tensor.numel():
        return ()
    with torch.no_grad():
        rows = tensor.detach()[:_MOST_ROWS].flatten(1)
        if rows.shape[1] < _LEAST_ELEMENTS:
            return ()
        # Spread over the row: the margins of images, and the padding of texts, are alike.
        stride = -(-rows.shape[1] // _ROW_ELEMENTS)
        part = rows[:, ::stride].cpu().contiguous().view(torch.uint8).numpy()
    return tuple(zlib.crc32(row.tobytes()) for row in part)


Squares = list[tuple[Entry, float | None]]
"""Parameters, and the sums of squares of their gradients or weights; None if unknown."""


def squares_of(entries: list[Entry], values: "list[Tensor | None]") -> Squares:
    """Return the sum of squares of a gradient or weight of each parameter."""
    with torch.no_grad():
        found = norms(values)
    squares = (None if norm is None else norm * norm for norm in found)
    return list(zip(entries, squares, strict=True))


def line_outside(frames: list[FrameType]) -> Line | None:
    """Return the innermost line of the script that is not in a method of a module."""
    for frame in frames:
        first = frame.f_code.co_varnames[:1]
        owner = frame.f_locals.get(first[0]) if first else None
        if not isinstance(owner, nn.Module):
            return Line(frame.f_code, frame.f_lineno)
    return None


MOST_EVENTS = 1_000
"""Maximum number of different events."""


class RankLog:
    """The records of a rank. Equal events at one line are one record with a count."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.step = 0
        """Number of optimizer steps made."""
        self._records: list[object] = []
        self._events: list[RankEvent] = []
        self._indices: dict[tuple[str, int | None, str], int] = {}
        self._changed: set[int] = set()

    def add(self, record: object) -> None:
        """Add a record."""
        self._records.append(record)

    def site(self, location: Location | None) -> int | None:
        """Return the index of the user's line at a location."""
        return None if location is None else self.line(location.user or location.inner)

    def line(self, line: Line | None) -> int | None:
        """Return the index of a line."""
        return self.sites.index(line)

    def note(
        self,
        kind: str,
        site: int | None,
        subject: str = "",
        numbers: Mapping[str, float] | None = None,
        related: Iterable[int | None] = (),
    ) -> None:
        """Record an event; one that happened before at the same line is counted."""
        key = (kind, site, subject)
        index = self._indices.get(key)
        others = tuple(dict.fromkeys(one for one in related if one is not None and one != site))
        reported = tuple((numbers or {}).items())
        if index is None:
            if len(self._events) >= MOST_EVENTS:
                return
            index = self._indices[key] = len(self._events)
            self._events.append(
                RankEvent(
                    kind=kind,
                    site=site,
                    subject=subject,
                    step=self.step,
                    count=1,
                    numbers=reported,
                    related=others,
                )
            )
        else:
            one = self._events[index]
            self._events[index] = replace(one, count=one.count + 1, numbers=reported or one.numbers)
        self._changed.add(index)

    def take(self) -> Taken:
        """Return what is new since the last call."""
        records, self._records = tuple(self._records), []
        changed, self._changed = sorted(self._changed), set()
        return Taken(records, tuple((index, self._events[index]) for index in changed))


def holds_all(given: Tensor, output: Tensor, parameters: Iterable[Tensor]) -> bool:
    """Return whether a tensor that ranks scatter holds all gradients.

    Args:
        given: What a rank gives.
        output: The slice that it gets.
        parameters: The parameters.
    """
    held = (one.grad for one in parameters)
    present = [one for one in held if one is not None and one is not output]
    whole, *parts = norms([given, *present])
    known = [(one.numel(), part) for one, part in zip(present, parts, strict=True)]
    # The gradient of what holds a slice of the weights may still be the slice of the last step.
    for rows in (known, [row for row in known if row[0] != output.numel()]):
        found = [part for _, part in rows if part is not None]
        if whole and len(found) == len(rows) and _is_near(math.hypot(*found), whole):
            return True
    return False


def share_of(held: Iterable[Tensor], reduced: set[int]) -> float:
    """Return which share of the parameters with a gradient, 0 to 1, the script has reduced."""
    present = [id(parameter) for parameter in held if parameter.grad is not None]
    return sum(one in reduced for one in present) / max(len(present), 1)


def norm_now(held: Iterable[Tensor], owner: int) -> float | None:
    """Return the norm of a parameter's gradient, or of all that have so many elements together."""
    present = [(parameter, parameter.grad) for parameter in held if parameter.grad is not None]
    own = [gradient for parameter, gradient in present if id(parameter) == owner]
    if not own and sum(gradient.numel() for _, gradient in present) == owner:
        own = [gradient for _, gradient in present]
    found = [norm for norm in norms(own) if norm is not None]
    return math.hypot(*found) if found else None


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * abs(other)
