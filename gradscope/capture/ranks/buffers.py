"""Measures buffers that no wrapper makes equal on all ranks."""

from collections.abc import Iterator
from itertools import islice

from torch import Tensor, nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.ranks.placement import is_fsdp1, is_fsdp2
from gradscope.capture.ranks.reducers import Reducers
from gradscope.capture.statistics import norms
from gradscope.capture.training.state import TrainingState
from gradscope.target import members

_MOST = 64
"""Maximum number of buffers of a model."""


class Buffers:
    """Measures the buffers of FSDP models, and of DDP models that do not broadcast them.

    In a script that reduces gradients itself, those of all models.

    Args:
        training: State of the training.
        log: Receives the norms.
        reducers: The models that DDP wraps.
    """

    def __init__(self, training: TrainingState, log: RankLog, reducers: Reducers) -> None:
        self._training, self._log, self._reducers = training, log, reducers

    def measure(self, *, is_by_hand: bool) -> None:
        """Record the norms of the buffers.

        Args:
            is_by_hand: Whether the script itself reduced gradients of this step.
        """
        definitions = self._training.models.records.definitions
        for model in self._models(is_by_hand=is_by_hand):
            found = list(islice(_floating(model), _MOST))
            values = norms([tensor for _, _, tensor in found])
            for (module, name, _), norm in zip(found, values, strict=True):
                if norm is not None:
                    made = self._log.line(definitions.modules.get(module))
                    self._log.note("buffer", made, name, {"norm": norm})

    def _models(self, *, is_by_hand: bool) -> Iterator[nn.Module]:
        for one in self._reducers.known:
            model = one.model()
            if model is not None and not model.broadcast_buffers:
                yield model.module
        seen: set[int] = set()
        for module in self._training.models.modules:  # a model before its parts
            is_sharded = is_fsdp1(module) or is_fsdp2(module)
            is_bare = is_by_hand and not self._reducers.known
            if id(module) not in seen and (is_sharded or is_bare):
                seen.update(map(id, members.modules(module)))
                yield module


def _floating(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for path, module in members.named_modules(model):
        for name, buffer in members.own_buffers(module):
            if buffer.is_floating_point() and buffer.numel():
                yield module, f"{path}.{name}" if path else name, buffer
