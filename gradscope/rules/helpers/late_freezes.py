"""Parameters that are frozen in the middle of a run, and what the optimizer's steps do to them."""

from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.analysis.windows import Windows
from gradscope.recording.events import ZeroEvent, only
from gradscope.recording.evidence.parameters import FreezeRecord
from gradscope.recording.norm_table import REACHES, norms_of
from gradscope.recording.records import Recording, Site
from gradscope.rules.context import RuleContext

_ALIVE = REACHES.index("gradient")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateFreeze:
    """Frozen parameters that an optimizer moves on without a gradient."""

    optimizer: int
    """Index of the run's optimizer."""
    parameters: tuple[int, ...]
    step: int
    """First step after the freeze in which a move was measured."""
    ratio: float
    """Largest norm of an update over that of the weights."""
    freeze: Site | None
    """Line that froze them, None if there are several or none."""
    zero: ZeroEvent | None
    """The last call that fills gradients with zeros instead of removing them."""


def late_freezes(context: RuleContext) -> Iterator[LateFreeze]:
    """Yield what is frozen midway and moves on to the end of a run, by optimizer."""
    recording, windows = context.recording, context.shared(Windows)
    frozen = _frozen(recording)
    moved = {p: found for p, since in frozen.items() if (found := _moves(recording, p, since))}
    for position, record in enumerate(windows.optimizers):
        own = tuple(p for p in record.parameters if p in moved)
        if not own:
            continue
        zeros = (
            event
            for event in only(ZeroEvent, windows.events)
            if not event.set_to_none and event.optimizer in (None, position)
        )
        yield LateFreeze(
            optimizer=position,
            parameters=own,
            step=min(moved[p][0] for p in own),
            ratio=max(moved[p][1] for p in own),
            freeze=_freezing_line(recording),
            zero=next(zeros, None),
        )


def _frozen(recording: Recording) -> dict[int, int]:
    """Return the parameters that are frozen midway, by their index, with the first such step."""
    positions: dict[str, list[int]] = {}
    for record in recording.parameters:
        if record.requires_grad:
            positions.setdefault(record.name, []).append(record.index)
    found: dict[int, int] = {}
    for captured in recording.captured_steps:
        for record in captured.recording.parameters:
            known = positions.get(record.name, ())
            if len(known) == 1 and not record.requires_grad:  # else it is not sure which one it is
                found.setdefault(known[0], captured.step)
    return found


def _moves(recording: Recording, parameter: int, since: int) -> tuple[int, float] | None:
    """Return the first measured move after a step, and the largest; None if it learns again."""
    norms = norms_of(recording)
    first, largest = None, 0.0
    for row in range(norms.rows_of(since).start, len(norms.steps)):
        if norms.parameters[row] != parameter:
            continue
        if norms.reaches[row] == _ALIVE:
            return None
        if norms.updates[row] > 0 and norms.weights[row] > 0:
            first = norms.steps[row] if first is None else first
            largest = max(largest, norms.updates[row] / norms.weights[row])
    return None if first is None else (first, largest)


def _freezing_line(recording: Recording) -> Site | None:
    lines = {
        captured.recording.sites[record.site]
        for captured in recording.captured_steps
        for record in captured.recording.evidence_of(FreezeRecord)
    }
    return lines.pop() if len(lines) == 1 else None
