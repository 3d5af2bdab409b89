"""Keeps the inputs of the calls of custom functions, on which their backward can be checked."""

from collections.abc import Callable
from dataclasses import field

from torch import Tensor
from torch.autograd import Function

from gradscope.capture.observed_calls import Args
from gradscope.capture.source.lines import Line
from gradscope.frozen import dataclass
from gradscope.probes.forward.gradient_check import MOST_ELEMENTS

_MOST = 3
"""Maximum number of calls kept per function, with inputs of different shapes."""


class NotKeptError(Exception):
    """The inputs of a call cannot be kept; the message says why."""


@dataclass(frozen=True, slots=True)
class Application:
    """One call of a custom function."""

    args: tuple[object, ...]
    """Arguments, with copies of tensors."""
    differentiable: tuple[int, ...]
    line: Line | None


def with_copies(args: Args) -> tuple[object, ...]:
    """Return arguments with copies of tensors, because later operations may write to them.

    Raises:
        NotKeptError: They are too large.
    """
    if sum(arg.numel() for arg in args if isinstance(arg, Tensor)) > MOST_ELEMENTS:
        raise NotKeptError("its inputs are too large")
    return tuple(arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args)


@dataclass(slots=True)
class Applications:
    """The first calls of a custom function, with inputs of different shapes."""

    function: type[Function]
    kept: Callable[[tuple[object, ...]], tuple[object, ...]] = with_copies
    """Returns what is kept of the arguments, or raises `NotKeptError`."""
    found: list[Application] = field(default_factory=list)
    line: Line | None = None
    """Line of the first call."""
    skip_reason: str = "a second forward did not call it"
    """Why no call was kept."""
    _shapes: set[tuple[object, ...]] = field(default_factory=set)

    def note(self, args: Args, line: Line | None) -> None:
        """Store copies of the inputs, unless there are enough with these shapes."""
        self.line = self.line or line
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, Tensor))
        # A backward may be right for some shapes only, as one that assumes a square.
        if shapes in self._shapes or len(self._shapes) == _MOST:
            return
        positions = tuple(
            position
            for position, arg in enumerate(args)
            if isinstance(arg, Tensor) and arg.requires_grad
        )
        if not positions:  # as at the first step of a recurrence, whose state is zero
            self.skip_reason = "none of its inputs requires grad"
            return
        self._shapes.add(shapes)
        try:
            self.found.append(Application(self.kept(args), positions, line))
        except NotKeptError as error:
            self.skip_reason = str(error)


def first_input(function: type[Function]) -> int:
    """Return the index of a forward's first input: after the context, if it gets one."""
    return 1 if function.setup_context is Function.setup_context else 0
