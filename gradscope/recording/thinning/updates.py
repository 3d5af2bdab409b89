"""Whether an unusually large update comes shortly before a step: rules compare the steps around."""

from collections.abc import Iterable, Iterator
from math import hypot, isfinite
from statistics import median

from gradscope.recording.step_norms import NORMS, numbers_of
from gradscope.recording.thinning.chunks import Whole
from gradscope.recording.thinning.readings import Reading
from gradscope.recording.writer import RecordingWriter

LED = 4e5
"""Importance of such a step: less than that of the first broken one."""
_FOLLOWS = 12
"""Number of steps within which a loss follows an update."""
_WINDOW, _LEAST = 12, 5
"""Largest and least number of measured updates with which one is compared."""
_LARGE = 2.0
"""Multiple of the usual update."""


def follows_large_update(writer: RecordingWriter, last: Iterable[object], reading: Reading) -> bool:
    """Return whether an update of the steps before a reading exceeds the usual one.

    Args:
        writer: Writer of the recording.
        last: The last steps, in order; those that are not `Whole` measured nothing.
        reading: What was read of the step.
    """
    near = (one for one in last if isinstance(one, Whole) and one.has_norms)
    # Updates are measured in every tenth step only.
    span = range(reading.step - 10 * (_WINDOW + 2) - _FOLLOWS, reading.step)
    known = list(_updates(writer, (one for one in near if one.step in span)))
    for index in range(_LEAST, len(known)):
        step, norm = known[index]
        before = [one for _, one in known[max(index - _WINDOW, 0) : index]]
        is_large = norm >= _LARGE * median(before) and norm > max(before)
        if is_large and reading.step - step <= _FOLLOWS:
            return True
    return False


def _updates(writer: RecordingWriter, steps: Iterable[Whole]) -> Iterator[tuple[int, float]]:
    """Yield the steps with measured updates, and the norm of these over the learning rate."""
    for one in steps:
        rates = [
            number
            for event in one.events
            if event.kind == "step"
            for name, number in event.numbers
            if name == "lr"
        ]
        cells = writer.cells(NORMS, ("set", "update_norm"), one.rows[NORMS])
        norms = [
            norm
            for index, cell in cells
            if cell is not None
            for norm in numbers_of(cell, len(writer.norm_sets.parameters[index]))
            if norm >= 0
        ]
        # A schedule changes the size of all updates: only the gradient's part of it is compared.
        size = hypot(*norms) / ((rates[-1] if rates else 0.0) or 1.0)
        if norms and isfinite(size):
            yield one.step, size
