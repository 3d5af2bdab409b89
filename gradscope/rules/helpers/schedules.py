"""The line that a finding on a learning-rate schedule names."""

from gradscope.analysis.windows import Series
from gradscope.recording.events import SchedulerEvent
from gradscope.recording.evidence.training import LibraryCall
from gradscope.recording.finding import RelatedLocation
from gradscope.rules.context import RuleContext


def schedule_lines(
    context: RuleContext, series: Series, call: SchedulerEvent
) -> tuple[int | None, RelatedLocation | None]:
    """Return the line of a schedule's step, and the line that made the schedule beside it.

    Where a trainer steps the schedule, the line that made it comes first: a call such as
    `trainer.fit` says nothing of it.
    """
    made = None if series.record is None else series.record.schedule_site
    trainers = {one.caller for one in context.recording.evidence_of(LibraryCall)}
    if made is not None and call.site in trainers:
        return made, context.related(call.site, "the trainer steps it here")
    return call.site, context.related(made, "the schedule is made here")
