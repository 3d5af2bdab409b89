"""What an optimizer's learning-rate schedule is planned for, and when it steps."""

from collections.abc import Iterator

from gradscope.analysis.windows import Series
from gradscope.recording.events import SchedulerEvent, only


def planned_steps(series: Series) -> int | None:
    """Return the number of steps that a schedule is planned for, None without such a number."""
    return None if series.record is None else series.record.planned_steps


def scheduler_calls(series: Series) -> Iterator[tuple[SchedulerEvent, int]]:
    """Yield the steps of the schedule between an optimizer's steps, with their number."""
    for window in series.windows:
        for event in only(SchedulerEvent, window.events):
            if event.optimizer in (None, *series.optimizers):
                yield event, window.count
