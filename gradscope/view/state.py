"""How far a recording is: whether its run goes on, and how it ended."""

from datetime import datetime
from typing import Literal

from gradscope.analysis.training_run import ending_text
from gradscope.frozen import dataclass
from gradscope.recording.overview import Overview

StateKind = Literal["running", "silent", "ended", "failed", "unreadable"]

_PATIENCE, _STEPS = 10.0, 20
"""Seconds without a write, and duration of so many steps, after which a run counts as silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a recording."""

    kind: StateKind
    text: str
    """In words, such as `silent since 14:03`."""


def state_of(overview: Overview, written: float, now: float) -> RunState:
    """Return the state of a recording.

    Whether the process of a silent run was killed or waits, its recording cannot tell.

    Args:
        overview: The recording.
        written: When it was last written, in seconds since the epoch.
        now: The time in seconds since the epoch.
    """
    ending, root = overview.ending, overview.header.target.root
    if ending is None and not overview.header.finished:
        a_step = overview.seconds / overview.steps if overview.steps else 0.0
        silence = now - written
        if silence <= max(_PATIENCE, _STEPS * a_step):
            return RunState(kind="running", text="running")
        return RunState(kind="silent", text=f"silent since {_clock(written, now)}")
    told = ending_text(ending, root, is_complete=overview.header.finished)
    if told is not None and told.is_trouble:
        return RunState(kind="failed", text=told.line)
    return RunState(kind="ended", text="ended" if told is None else told.line)


def _clock(moment: float, now: float) -> str:
    """Return a time of day, with the date unless it is today's."""
    then, today = datetime.fromtimestamp(moment), datetime.fromtimestamp(now)
    return f"{then:%H:%M}" if then.date() == today.date() else f"{then:%Y-%m-%d %H:%M}"
