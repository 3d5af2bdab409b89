"""Observes calls of collectives: lines that start them, and those that autograd sees."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from gradscope.capture.compiler import is_traced
from gradscope.capture.observed_calls import argument
from gradscope.capture.ranks.gather_flow import gather_reaches_loss
from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.state import TrainingState

_FUNCTIONS = "torch.distributed.nn.functional"

_MOST = 24
"""Number of first backward passes before which they are observed."""
_SYNCHRONISING = (
    "barrier",
    "monitored_barrier",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
)
# Not `isend` and `irecv`: `P2POp` compares what it is given with these functions.
_POINT_TO_POINT = ("send", "recv", "batch_isend_irecv")
_TENSORS = "torch.distributed.tensor"
_MOST_LINES = 256
"""Maximum number of lines."""


class AutogradCollectives:
    """Notes sums and exchanges in a forward, and gathers for which gradients are disabled.

    Args:
        training: State of the training.
        log: Receives what is observed.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._in_backward = False
        self._passes = 0

    def install(self, patches: Patches) -> None:
        """Start observing gathers, if the functions are loaded.

        Trainers call them without gradients unless the script asks for them.
        """
        module = sys.modules.get(_FUNCTIONS)
        if module is not None:
            patches.wrap(module, "all_gather", self._wrap_gather)

    def _wrap_gather(self, original: Function) -> Function:
        def all_gather(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            given = argument(args, kwargs, 0, "tensor")
            has_none = isinstance(given, Tensor) and given.requires_grad
            if has_none and not torch.is_grad_enabled() and not is_traced():
                self._training.guard.run(self._gathers, sys._getframe(1))
            return original(*args, **kwargs)

        return all_gather

    def _gathers(self, frame: FrameType) -> None:
        if self._passes < _MOST:
            location = self._training.locations.of(frame)
            reach = gather_reaches_loss(location, returns=True)
            flags = {"reaches": float(reach.loss), "replaced": float(reach.own), "disabled": 1.0}
            self._log.note("gathered", self._log.site(location), "all_gather", flags)

    def backward_begins(self) -> None:
        """Note that a backward begins: its collectives are not those of a forward."""
        self._in_backward = True

    def backward_ended(self) -> None:
        """Note that a backward has ended."""
        self._in_backward = False
        self._passes += 1

    def exchanges(self, given: object, frame: FrameType) -> None:
        """Note that ranks exchange rows of a tensor that backward will reach.

        Args:
            given: What the rank sends: a tensor, or a list of them.
            frame: Frame that calls the collective.
        """
        tensor = given[0] if isinstance(given, list | tuple) and given else given
        if self._in_backward or self._passes >= _MOST or not isinstance(tensor, Tensor):
            return
        if tensor.requires_grad:
            location = self._training.locations.of(frame)
            self._log.note("exchanged", self._log.site(location))

    def runs(self, name: str, frame: FrameType) -> None:
        """Note a collective that torch runs in the forward of such a function.

        Args:
            name: Name of the collective.
            frame: Frame that calls it.
        """
        # These functions are `autograd.Function`s: forward and backward call the plain collectives.
        is_forward = frame.f_code.co_name == "forward"
        if not is_forward or self._in_backward or self._passes >= _MOST:
            return
        if frame.f_globals.get("__name__") != _FUNCTIONS:
            return
        if name == "all_to_all_single":
            self.exchanges(frame.f_locals.get("input"), frame)
        if name != "all_reduce":
            return
        # The text of `ReduceOp.SUM` is `RedOpType.SUM`. A single number is a loss or a count.
        given, operation = frame.f_locals.get("tensor"), str(frame.f_locals.get("op", ""))
        if isinstance(given, Tensor) and given.numel() > 1 and operation.endswith("SUM"):
            location = self._training.locations.of(frame)
            self._log.note("summed-with-gradient", self._log.site(location), "all_reduce")


class CollectiveLines:
    """Records each line that starts a collective once.

    A rank that waits there forever, or is killed, has written its line.

    Args:
        training: State of the training.
        log: Receives the lines.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._seen: set[tuple[CodeType, int]] = set()
        self.is_on = False
        """Whether the process group is ready."""

    def install(self, patches: Patches) -> None:
        """Start observing functions that no other part of gradscope replaces."""
        for name in _SYNCHRONISING:
            patches.wrap(distributed_c10d, name, self._wrapper(name))
            patches.put(dist, name, vars(distributed_c10d)[name])
        for name in _POINT_TO_POINT:
            patches.wrap(distributed_c10d, name, self._wrapper(name, "point-to-point"))
            patches.put(dist, name, vars(distributed_c10d)[name])

    def observe_tensors(self, patches: Patches) -> None:
        """Observe distributed tensors that are gathered, if the script has imported them."""
        module = sys.modules.get(_TENSORS)
        if module is not None:
            patches.wrap(module.DTensor, "full_tensor", self._wrapper("full_tensor"))

    def _wrapper(self, name: str, kind: str = "collective") -> Callable[[Function], Function]:
        def wrap(original: Function) -> Function:
            def observed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
                if not is_traced() and self.is_on and len(self._seen) < _MOST_LINES:
                    frame = sys._getframe(1)
                    if self.is_new(frame):
                        self._training.guard.glance(self.begins, name, frame, kind)
                return original(*args, **kwargs)

            return observed

        return wrap

    def is_new(self, frame: FrameType) -> bool:
        """Return whether a line starts its first collective."""
        return (frame.f_code, frame.f_lineno) not in self._seen

    def begins(self, name: str, frame: FrameType, kind: str = "collective") -> None:
        """Record and write a line that is about to start its first collective."""
        self._seen.add((frame.f_code, frame.f_lineno))
        location = self._training.locations.of(frame)
        if location.user is not None:
            self._log.note(kind, self._log.site(location), name)
            self._training.flush_ranks()
