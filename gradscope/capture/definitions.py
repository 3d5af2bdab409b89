"""Which line made what: modules and parameters where they were given to a module, optimizers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.capture.lines import Caller, Line


class Registration(NamedTuple):
    """A parameter was given to a module."""

    module: ref[nn.Module]
    name: str
    line: Line | None


@dataclass(slots=True)
class Definitions:
    """The lines that made modules, parameters and optimizers, as far as they were watched."""

    modules: WeakKeyDictionary[nn.Module, Line] = field(default_factory=WeakKeyDictionary)
    """`self.head = nn.Linear(…)`; of a module that was registered again, its first line."""
    replacements: WeakKeyDictionary[nn.Module, Line] = field(default_factory=WeakKeyDictionary)
    """By module that took the place of another under the same name: the line."""
    parameters: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    """By parameter: its first `Registration`."""
    optimizers: WeakKeyDictionary[torch.optim.Optimizer, Line | None] = field(
        default_factory=WeakKeyDictionary
    )
    """Every optimizer, in the order in which they were made."""

    def registration(self, parameter: Tensor) -> Registration | None:
        """Return where a parameter was first given to a module, None where nobody saw it."""
        found: Registration | None = self.parameters.get(parameter)
        return found


@contextmanager
def watch_definitions() -> Iterator[Definitions]:
    """Note what is made by which line while the block runs."""
    watch = _Watch()
    handles = (
        register_module_module_registration_hook(watch.note_module),
        register_module_parameter_registration_hook(watch.note_parameter),
    )
    original = torch.optim.Optimizer.__init__

    def noted(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        watch.note_optimizer(optimizer)
        original(optimizer, *args, **kwargs)

    torch.optim.Optimizer.__init__ = noted  # type: ignore[method-assign,assignment]
    try:
        yield watch.found
    finally:
        torch.optim.Optimizer.__init__ = original  # type: ignore[method-assign]
        for handle in handles:
            handle.remove()


class _Watch:
    """Takes what torch's registration hooks tell."""

    def __init__(self) -> None:
        self._caller = Caller()
        self.found = Definitions()

    def note_module(self, parent: nn.Module, name: str, module: nn.Module | None) -> None:
        line = None if module is None else self._line()
        if module is None or line is None:
            return
        if module not in self.found.modules:
            self.found.modules[module] = line
        replaced = parent._modules.get(name)
        if replaced is not None and replaced is not module:
            self.found.replacements[module] = line

    def note_parameter(self, module: nn.Module, name: str, parameter: Tensor | None) -> None:
        if parameter is not None and parameter not in self.found.parameters:
            self.found.parameters[parameter] = Registration(ref(module), name, self._line())

    def note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.found.optimizers[optimizer] = self._line()

    def _line(self) -> Line | None:
        return self._caller.line(sys._getframe(2))
