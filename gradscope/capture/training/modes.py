"""Records where a script sets modules to eval mode."""

import sys
from dataclasses import dataclass
from typing import Any
from weakref import ref

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gradscope.capture.compiler import is_traced
from gradscope.capture.training.guard import Guard
from gradscope.capture.training.locations import Location, Locations
from gradscope.capture.training.patches import Function, Patches


@dataclass(slots=True)
class Mode:
    """A model was called in eval mode while gradients were enabled."""

    name: str
    location: Location
    """Line that set it to eval mode, or line of the call if that was not observed."""
    dropout: int
    batchnorm: int


class EvalModes:
    """Observes `Module.eval()`, which calls `train(False)` of each submodule."""

    def __init__(self, guard: Guard, locations: Locations) -> None:
        self._guard, self._locations = guard, locations
        self._lines: dict[int, tuple[ref[nn.Module], Location]] = {}
        """By `id` of the module."""
        self._outermost: Location | None = None

    def install(self, patches: Patches) -> None:
        """Start observing."""
        patches.wrap(nn.Module, "train", self._wrap)

    def line_of(self, module: nn.Module) -> Location | None:
        """Return the line that last set a module to eval mode, None if that was not observed."""
        known = self._lines.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def _wrap(self, original: Function) -> Function:
        def train(module: nn.Module, mode: bool = True) -> Any:  # noqa: ANN401
            if is_traced() or mode or not self._guard.active:
                return original(module, mode)
            frame = sys._getframe(1)
            # `train` calls itself for every submodule, from inside torch. Only the
            # outermost call is made by a line of the script.
            is_outermost = self._outermost is None
            if is_outermost:
                self._outermost = self._guard.run(self._locations.of, frame)
            try:
                self._guard.run(self._note, module)
                return original(module, mode)
            finally:
                if is_outermost:
                    self._outermost = None

        return train

    def _note(self, module: nn.Module) -> None:
        if self._outermost is not None:
            key = id(module)
            self._lines[key] = (ref(module, lambda _: self._forget(key)), self._outermost)

    def _forget(self, key: int) -> None:
        known = self._lines.get(key)
        if known is not None and known[0]() is None:  # not another module at the same address
            del self._lines[key]


def depends_on_mode(module: nn.Module) -> bool:
    """Return whether a module behaves differently in training and eval mode."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, _BatchNorm):
        # Without running statistics, eval mode normalizes by the batch too.
        return module.track_running_stats
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
