"""Records the lines that start collectives, before a rank waits there for the others."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from gradscope.capture.compiler import is_traced
from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.state import TrainingState

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

_MOST = 256
"""Maximum number of lines."""


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
                if not is_traced() and self.is_on and len(self._seen) < _MOST:
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
