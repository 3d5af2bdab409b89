"""A look at a backward that an exception has ended, and the script with it."""

from collections.abc import Collection, Iterable

from gradscope.capture.assemble import Assembler
from gradscope.capture.diagnosis import Diagnosis
from gradscope.capture.errors import StepFailedError, backward_failed
from gradscope.capture.naming import NamedModel
from gradscope.capture.session import StepCapture
from gradscope.capture.sites import SiteMode
from gradscope.probes.examinations import make_none
from gradscope.recording.records import Recording, TargetRecord


def failed_look(
    error: Exception,
    capture: StepCapture,
    named: NamedModel,
    assembler: Assembler,
    earlier: Iterable[SiteMode],
    *,
    passed: Collection[int],
    target: TargetRecord,
) -> Recording:
    """Return a recording of what was seen of a backward, and of why autograd ended it.

    Args:
        error: What it raised, with its traceback.
        capture: What was seen by then, of which the graph may be missing.
        named: The script's models.
        assembler: Makes the records.
        earlier: Where operations before the last step came from.
        passed: The creation numbers of what other backwards have gone through.
        target: The script.
    """
    shown = backward_failed(capture, error)
    failed = StepFailedError(shown, error, capture, target.loss)
    numbers = capture.nodes_by_number()
    older = {number for number in numbers if number < capture.first_number}
    if older.isdisjoint(passed) or len(older) == len(numbers):
        # Made before the last step of an optimizer, but never yet used, or all of it: no part of
        # an earlier iteration's that has found its way into this one.
        capture.first_number = min(numbers, default=capture.first_number)
        capture.backwards.reach_back()
    place = assembler.place_of(capture) if capture.graph.nodes else None
    reason = f"backward raised {type(error).__name__}"
    assembler.add_broken_step(capture, reason=reason)
    record = Diagnosis(failed, earlier).record(place, assembler.site_of, step=0, named=named)
    assembler.note(record)
    make_none(assembler, reason)
    return assembler.finish(target)
