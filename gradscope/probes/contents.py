"""What can change inside a model: all that is reachable from its attributes, and how it was."""

import copy
import dataclasses
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from torch import Tensor, nn

_CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict, Counter)
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type)


@dataclass(slots=True)
class Contents:
    """The mutable values that were found, with what they held."""

    tensors: list[Tensor] = field(default_factory=list)
    _containers: list[tuple[object, object]] = field(default_factory=list)
    """With copies of them."""
    _puts: list[Callable[[], object]] = field(default_factory=list)
    """Each puts an array or a random generator back."""

    def restore(self) -> None:
        """Give every container, array and generator its content again; tensors are not touched."""
        for container, content in self._containers:
            refill(container, content)
        for put in self._puts:
            put()

    def note(self, value: object) -> Iterable[object]:
        """Keep a value as it is now, and return the values inside it."""
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return ()
        if isinstance(value, nn.Module | SimpleNamespace | torch.optim.Optimizer):
            # A module's parameters, buffers and children are dictionaries among its attributes, an
            # optimizer's state and groups likewise.
            return [*self._note_container(vars(value)), *_scripted(value)]
        if type(value) in _CONTAINERS:
            return self._note_container(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if hasattr(value, "__dict__"):
                self._note_container(vars(value))
            return [getattr(value, item.name, None) for item in dataclasses.fields(value)]
        put = _random_generator(value) or _array(value)
        if put is not None:
            self._puts.append(put)
        return _inside(value)

    def _note_container(self, value: object) -> Iterable[object]:
        self._containers.append((value, copy.copy(value)))
        return _inside(value)


def contents_of(*roots: object) -> Contents:
    """Look through modules, containers and dataclasses, however deeply nested.

    Modules count wherever they are: layers in a plain list too. Objects of other classes are not
    entered, because from there a whole program can be reached.
    """
    found = Contents()
    waiting: list[object] = list(roots)
    seen: dict[int, object] = {}  # the values are held, so that no identity is given twice
    while waiting:
        value = waiting.pop()
        if not isinstance(value, _ATOMS) and id(value) not in seen:
            seen[id(value)] = value
            waiting += found.note(value)
    return found


def refill(container: object, content: object) -> None:
    """Give a list, deque, dict or set its former content."""
    if isinstance(container, list | deque) and isinstance(content, list | deque):
        container.clear()
        container.extend(content)
    elif isinstance(container, dict | set) and isinstance(content, dict | set):
        container.clear()
        container.update(content)


def _scripted(value: object) -> list[Tensor]:
    """Return the tensors that TorchScript holds, out of sight of Python's attributes."""
    if not isinstance(value, torch.jit.ScriptModule):
        return []
    return [*value.parameters(), *value.buffers()]


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple | set | frozenset | deque) else ()


def _random_generator(value: object) -> Callable[[], object] | None:
    if isinstance(value, torch.Generator):
        torch_state = value.get_state()
        return lambda: value.set_state(torch_state)
    if isinstance(value, random.Random):
        state = value.getstate()
        return lambda: value.setstate(state)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits, bit_state = value.bit_generator, value.bit_generator.state
        return lambda: setattr(bits, "state", bit_state)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        numpy_state = value.get_state()
        return lambda: value.set_state(numpy_state)
    return None


def _array(value: object) -> Callable[[], object] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return None
    array, content = value, value.copy()
    # One that cannot be written to has not been.
    return lambda: numpy.copyto(array, content) if array.flags.writeable else None
