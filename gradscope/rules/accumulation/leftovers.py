"""Micro-batches at the end of an epoch that make no whole window."""

from dataclasses import dataclass

from gradscope.analysis.optimizer_steps import RunEvent, Window, Windows
from gradscope.rules.accumulation.micro_batches import Accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Passes that no step has used."""

    passes: tuple[RunEvent, ...]
    zero: RunEvent | None
    """What erased them; None where the run ended."""


def leftovers(windows: Windows, accumulation: Accumulation) -> tuple[Leftover, ...]:
    """Return the passes of a line that were fewer than a window, and were given up."""
    series = accumulation.series
    found: list[Leftover] = []
    pending: list[RunEvent] = []
    for event in windows.events:
        if event.kind == "backward" and event.site == accumulation.site:
            pending.append(event)
        elif event.kind == "step" and event.optimizer in series.optimizers:
            pending = []
        elif series.may_lose(event):
            if 0 < len(pending) < accumulation.passes:
                found.append(Leftover(passes=tuple(pending), zero=event))
            pending = []
    if 0 < len(pending) < accumulation.passes and _is_at_end_of_epoch(windows, pending[-1]):
        found.append(Leftover(passes=tuple(pending), zero=None))
    return tuple(found)


def overfull(accumulation: Accumulation) -> tuple[Window, ...]:
    """Return the steps that were fed by passes left over from the epoch before, and a window."""
    found = [one for one in accumulation.windows if len(one.passes) > accumulation.passes]
    with_epoch = [one for one in found if _begins_epoch(one)]
    if with_epoch:
        return tuple(with_epoch)
    sizes = {len(one.passes) for one in found}
    return tuple(found) if len(found) > 1 and len(sizes) == 1 else ()


def _begins_epoch(window: Window) -> bool:
    first, last = window.passes[0].place, window.passes[-1].place
    return any(one.kind == "epoch" and first < one.place < last for one in window.events)


def _is_at_end_of_epoch(windows: Windows, last: RunEvent) -> bool:
    """Return whether a pass is the last one of the epoch that it belongs to, as far as is known."""
    epochs = [one for one in windows.events if one.kind == "epoch" and one.place < last.place]
    if not epochs:
        return False
    passes = [
        one
        for one in windows.events
        if one.kind == "backward" and one.site == last.site and one.place > epochs[-1].place
    ]
    return epochs[-1].number("batches") == len(passes)
