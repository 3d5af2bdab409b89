"""Follows the order in which a rank calls the modules whose weights FSDP2 gathers."""

import zlib
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.ranks.placement import groups_of, is_fsdp2
from gradscope.capture.training.state import TrainingState

_MOST = 256
"""Maximum number of modules in a pass."""


class GatherOrder:
    """Notes each module that is sharded over all ranks at its first call since the last backward.

    Args:
        training: State of the training.
        log: Receives the lines of the calls.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._names: dict[str, int] = {}
        """Modules called since the last backward, with a code for each name."""

    def see(self, module: nn.Module, frame: FrameType) -> None:
        """Note a call of a module with gradients enabled, at a frame."""
        name = _name_of(module) if is_fsdp2(module) else None
        if name is None or name in self._names or len(self._names) >= _MOST:
            return
        code = self._names[name] = zlib.crc32(name.encode())
        site = self._log.site(self._training.locations.of(frame))
        self._log.note("sharded-call", site, name, {"code": float(code)})

    def take(self) -> tuple[int, ...]:
        """Return the codes of a pass, and start the next one."""
        codes = tuple(self._names.values())
        self._names = {}
        return codes


def _name_of(module: Any) -> str | None:  # noqa: ANN401 - a class that may not be loaded
    """Return the name that FSDP2 knows a module by; None if not all ranks share its weights.

    The outermost module, whose weights all ranks gather first, has none.
    """
    for group in groups_of(module):
        name = getattr(group, "_module_fqn", None)
        size = getattr(getattr(group, "mesh_info", None), "shard_mesh_size", None)
        if name and size == dist.get_world_size():
            return str(name)
    return None
