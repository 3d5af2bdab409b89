"""Exceptions of autograd's, and the steps that they end."""

import linecache
from traceback import walk_tb
from types import FrameType

import torch
from torch import Tensor

from gradscope.capture.own_faults import is_own_fault
from gradscope.capture.source.lines import Line
from gradscope.capture.step.edges import tensors
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.recording.evidence.failures import (
    ErrorKind,
)
from gradscope.target.outputs import (
    NoGradientError,
    NonScalarError,
    UnusableLossError,
)

ENTRIES = {torch.autograd.backward.__code__: "tensors", torch.autograd.grad.__code__: "outputs"}
"""The code of torch's ways into backward, and the argument that it starts from."""

_TOLD_BY: tuple[tuple[str, ErrorKind], ...] = (
    ("does not have a grad_fn", "no-graph"),
    ("second time", "freed"),
    ("modified by an inplace operation", "in-place"),
    ("in-place operation", "in-place"),
    ("being modified inplace", "in-place"),
    ("has been modified inplace", "in-place"),
    ("only for scalar outputs", "non-scalar"),
)
"""Parts of torch's messages: its exceptions are RuntimeErrors all."""


def autograd_error(error: GradscopeError) -> BaseException | None:
    """Return the exception of autograd's that ended a forward, None where it was another's."""
    if isinstance(error, UnusableLossError):
        return error
    raised = error.__cause__
    return raised if raised is not None and is_autograds(raised) else None


def is_autograds(raised: BaseException) -> bool:
    """Return whether an exception came out of a backward, or is of a write in place.

    Of what gradscope has raised itself it is neither.
    """
    if is_own_fault(raised):
        return False
    ran_backward = any(frame.f_code in ENTRIES for frame, _ in walk_tb(raised.__traceback__))
    return ran_backward or kind_of(raised) == "in-place"


def backward_call(raised: BaseException) -> FrameType | None:
    """Return the frame that has called the backward which raised; None where none did."""
    caller = None
    for frame, _ in walk_tb(raised.__traceback__):
        if frame.f_code in ENTRIES:
            return caller
        caller = frame
    return None


def kind_of(error: BaseException) -> ErrorKind:
    """Return what went wrong in autograd."""
    if isinstance(error, NoGradientError):
        return "no-graph"
    if isinstance(error, NonScalarError):
        return "non-scalar"
    if not isinstance(error, RuntimeError):
        return "other"
    return next((kind for part, kind in _TOLD_BY if part in str(error)), "other")


def backward_failed(capture: StepCapture, error: Exception) -> UserCodeError:
    """Return an exception of backward with the line of the operation whose backward raised."""
    failed = UserCodeError("backward raised an exception")
    node = capture.last_operation()
    if node is not None:
        line = capture.line_of(capture.graph.nodes[node])
        failed = UserCodeError(
            f"backward failed in {capture.graph.operations[node]}",
            cause=None if line is None else f"the backward of {_line_text(line)}",
        )
    failed.__cause__ = error
    return failed


def _line_text(line: Line) -> str:
    path = line.code.co_filename
    return f"{path}:{line.number}: {linecache.getline(path, line.number).strip()}"


def subject_of(error: GradscopeError) -> str:
    """Return what a forward ended in that backward could not start from; empty if it did."""
    return error.subject if isinstance(error, UnusableLossError) else ""


class StepFailedError(GradscopeError):
    """A step that autograd ended.

    Args:
        shown: What the user is told.
        raised: What autograd raised.
        capture: What had been seen by then.
        subject: What backward started from, or could not start from.
    """

    def __init__(
        self, shown: GradscopeError, raised: BaseException, capture: StepCapture, subject: str
    ) -> None:
        super().__init__(shown.what, cause=shown.cause, help=shown.help)
        self.shown, self.raised = shown, raised
        self.capture, self.subject = capture, subject
        self.root = _root(raised)
        if not capture.graph.nodes and self.root is not None and self.root.requires_grad:
            capture.trace(self.root)


def _root(error: BaseException) -> Tensor | None:
    """Return the tensor that backward started from, or should have."""
    if isinstance(error, UnusableLossError):
        return error.loss
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code in ENTRIES:
            return next(tensors(frame.f_locals.get(ENTRIES[frame.f_code])), None)
    return None
