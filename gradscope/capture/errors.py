"""Exceptions of autograd and the steps that they end, and exceptions of gradscope's own code."""

import linecache
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType

import torch
from torch import Tensor

from gradscope.capture.source.lines import Line, is_users
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph import tensors
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.recording.evidence.failures import ErrorKind
from gradscope.target.outputs import NoGradientError, NonScalarError, UnusableLossError

_PACKAGE = f"{Path(__file__).parents[1]}/"

_ENGINE = torch.autograd.graph._engine_run_backward.__code__

_HANDING_ON = frozenset({"__torch_function__", "_called", "run_backward"})
"""gradscope functions that call what the user's code called, and pass its exceptions on."""


def is_own_fault(raised: BaseException) -> bool:
    """Return whether a gradscope hook, compiled or not, ended a backward."""
    # While it traces, the compiler runs no frame of ours: the traceback has its own frames only.
    traced = getattr(raised, "real_stack", None)  # frames of torch's compiler
    if traced and traced[-1].filename.startswith(_PACKAGE):
        return True
    codes = [frame.f_code for frame, _ in walk_tb(raised.__traceback__)]
    if _ENGINE not in codes:
        return False
    # The last frame of the engine, because a backward may run another one, as checkpoints do.
    inside = codes[len(codes) - codes[::-1].index(_ENGINE) :]
    innermost = next((code for code in reversed(inside) if is_users(code) or _is_own(code)), None)
    return innermost is not None and _is_own(innermost)


def _is_own(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE) and code.co_name not in _HANDING_ON


ENTRIES = {torch.autograd.backward.__code__: "tensors", torch.autograd.grad.__code__: "outputs"}
"""Code of torch's entry points of backward, and the argument that names the roots."""

_TOLD_BY: tuple[tuple[str, ErrorKind], ...] = (
    ("does not have a grad_fn", "no-graph"),
    ("second time", "freed"),
    ("modified by an inplace operation", "in-place"),
    ("in-place operation", "in-place"),
    ("being modified inplace", "in-place"),
    ("has been modified inplace", "in-place"),
    ("only for scalar outputs", "non-scalar"),
)
"""Parts of torch's messages: its exceptions are all of the type RuntimeError."""


def autograd_error(error: GradscopeError) -> BaseException | None:
    """Return the autograd exception that ended a forward, None if another one did."""
    if isinstance(error, UnusableLossError):
        return error
    raised = error.__cause__
    return raised if raised is not None and is_autograds(raised) else None


def is_autograds(raised: BaseException) -> bool:
    """Return whether an exception came from a backward, or reports an in-place write.

    gradscope's own exceptions do neither.
    """
    if is_own_fault(raised):
        return False
    # torch refuses some writes, such as those to leaves, at once: no backward is on the stack then.
    ran_backward = any(frame.f_code in ENTRIES for frame, _ in walk_tb(raised.__traceback__))
    return ran_backward or kind_of(raised) == "in-place"


def backward_call(raised: BaseException) -> FrameType | None:
    """Return the frame that called the backward that raised, None if there is none."""
    caller = None
    for frame, _ in walk_tb(raised.__traceback__):
        if frame.f_code in ENTRIES:
            return caller
        caller = frame
    return None


def kind_of(error: BaseException) -> ErrorKind:
    """Return the kind of an autograd error."""
    if isinstance(error, NoGradientError):
        return "no-graph"
    if isinstance(error, NonScalarError):
        return "non-scalar"
    if not isinstance(error, RuntimeError):
        return "other"
    return next((kind for part, kind in _TOLD_BY if part in str(error)), "other")


def backward_failed(capture: StepCapture, error: Exception) -> UserCodeError:
    """Return an exception of backward, with the line of the operation whose backward raised."""
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
    """Return the tensor from which backward could not start; empty if it could."""
    return error.subject if isinstance(error, UnusableLossError) else ""


class StepFailedError(GradscopeError):
    """A step that autograd ended with an exception.

    Args:
        shown: Message for the user.
        raised: The exception of autograd.
        capture: Everything captured before.
        subject: The tensor from which backward started, or could not start.
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
    """Return the tensor from which backward started, or should have started."""
    if isinstance(error, UnusableLossError):
        return error.loss
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code in ENTRIES:
            return next(tensors(frame.f_locals.get(ENTRIES[frame.f_code])), None)
    return None
