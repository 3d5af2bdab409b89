"""Captures of steps that ended in an exception, and losses that ended the script."""

import math
from collections.abc import Collection, Iterable, Iterator
from traceback import walk_tb
from types import TracebackType

import torch
from torch import Tensor

from gradscope.capture.errors import StepFailedError, backward_failed
from gradscope.capture.naming import NamedModel
from gradscope.capture.source.lines import is_users
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.diagnosis import Diagnosis
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.known_values import has_storage
from gradscope.capture.step.sites import SiteMode
from gradscope.capture.step.views import is_old
from gradscope.capture.training.locations import NOWHERE, is_installed
from gradscope.capture.training.step_captures import Start
from gradscope.probes.parameter_history import note_freezes
from gradscope.probes.registry import record_none
from gradscope.recording.origin import TargetRecord
from gradscope.recording.records import (
    Recording,
)


def broken_start(traceback: TracebackType | None) -> Start | None:
    """Return a backward from a non-finite number with a graph, named by its variable.

    Of several, it is the one named as a loss, in the innermost frame of the script.
    """
    found = list(_broken(traceback))
    # Scripts that end themselves because of NaN mostly test the loss.
    losses = [one for one in found if "loss" in one[0].lower()]
    if not found:
        return None
    name, loss = (losses or found)[0]
    return Start(loss, NOWHERE, name, None, float(loss))


def _broken(traceback: TracebackType | None) -> Iterator[tuple[str, Tensor]]:
    frames = [frame for frame, _ in walk_tb(traceback) if is_users(frame.f_code)]
    for frame in reversed(frames):
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, Tensor) and _is_broken_number(value):
                yield name, value


def _is_broken_number(tensor: Tensor) -> bool:
    if not (has_storage(tensor) and tensor.is_cpu and tensor.is_floating_point()):
        return False
    if tensor.numel() != 1 or not tensor.requires_grad or is_old(tensor):
        return False
    with torch.no_grad():
        return tensor.grad_fn is not None and not math.isfinite(float(tensor))


def failed_recording(
    error: Exception,
    capture: StepCapture,
    named: NamedModel,
    assembler: Assembler,
    earlier: Iterable[SiteMode],
    *,
    passed: Collection[int],
    target: TargetRecord,
) -> Recording:
    """Return a recording of what was captured of a backward, and of why autograd ended it.

    Args:
        error: The exception, with its traceback.
        capture: The capture, which may have no graph.
        named: The script's models.
        assembler: Assembles the records.
        earlier: The lines of operations before the last step.
        passed: Sequence numbers of the nodes of other backwards.
        target: The script.
    """
    shown = backward_failed(capture, error)
    failed = StepFailedError(shown, error, capture, target.loss)
    numbers = capture.graph.by_number()
    older = {number for number in numbers if number < capture.first_number}
    if older.isdisjoint(passed) or len(older) == len(numbers):
        # Nodes older than the last optimizer step are only evidence of a carried-over graph if some
        # of them were used by an earlier iteration.
        capture.first_number = min(numbers, default=capture.first_number)
        capture.backwards.reach_back()
    location = assembler.position_of(capture) if capture.graph.nodes else None
    reason = f"backward raised {type(error).__name__}"
    assembler.add_broken_step(capture, reason=reason)
    record = Diagnosis(failed, earlier).record(location, assembler.site_of, step=0, named=named)
    assembler.note(record)
    file = _users_file(error) if record.frozen is not None else None
    if file is not None:
        note_freezes(assembler, file)
    record_none(assembler, reason)
    return assembler.finish(target)


def _users_file(error: Exception) -> str | None:
    """Return the innermost file that an exception passed and that is no package's."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    files = [one.co_filename for one in codes if is_users(one)]
    return next((one for one in reversed(files) if not is_installed(one)), None)
