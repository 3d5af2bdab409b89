"""Which line made which module: where it was given to its parent."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from gradscope.capture.lines import Caller, Line

Definitions = Mapping[nn.Module, Line]


@contextmanager
def watch_definitions() -> Iterator[Definitions]:
    """Note the line that registers each module while the block runs: `self.head = nn.Linear(…)`.

    A module that is registered again, as on its way into an `nn.Sequential`, keeps its first line.
    """
    caller = Caller()
    lines: WeakKeyDictionary[nn.Module, Line] = WeakKeyDictionary()

    def note(parent: nn.Module, name: str, module: nn.Module | None) -> None:
        if module is not None and module not in lines:
            line = caller.line(sys._getframe(1))
            if line is not None:
                lines[module] = line

    handle = register_module_module_registration_hook(note)
    try:
        yield lines
    finally:
        handle.remove()
