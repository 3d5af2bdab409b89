"""Saves the mutable state inside a model: everything reachable from its attributes."""

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
    """The mutable values that were found, with their content."""

    tensors: list[Tensor] = field(default_factory=list)
    _containers: list[tuple[object, object]] = field(default_factory=list)
    """Containers with copies of them."""
    _puts: list[Callable[[], object]] = field(default_factory=list)
    """Functions that each restore an array or a random generator."""

    def restore(self) -> None:
        """Restore every container, array and generator; tensors are not changed."""
        for container, content in self._containers:
            refill(container, content)
        for put in self._puts:
            put()

    def note(self, value: object) -> Iterable[object]:
        """Save a value's current state, and return the values inside it."""
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return ()
        if isinstance(value, nn.Module | SimpleNamespace | torch.optim.Optimizer):
            # A module's parameters, buffers and children are dictionaries among its attributes,
            # like an optimizer's state and groups.
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
    """Collect the state of modules, containers and dataclasses, however deeply nested.

    Modules are entered wherever they are, for example in a plain list. Objects of other classes are
    not entered, because the whole program may be reachable from there.
    """
    found = Contents()
    waiting: list[object] = list(roots)
    seen: dict[int, object] = {}  # the values are referenced, so that no `id` is reused
    while waiting:
        value = waiting.pop()
        if not isinstance(value, _ATOMS) and id(value) not in seen:
            seen[id(value)] = value
            waiting += found.note(value)
    return found


def refill(container: object, content: object) -> None:
    """Restore the content of a list, deque, dict or set."""
    if isinstance(container, list | deque) and isinstance(content, list | deque):
        container.clear()
        container.extend(content)
    elif isinstance(container, dict | set) and isinstance(content, dict | set):
        container.clear()
        container.update(content)


def _scripted(value: object) -> list[Tensor]:
    """Return the tensors that TorchScript holds outside of Python's attributes."""
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
    # A read-only array cannot have changed.
    return lambda: numpy.copyto(array, content) if array.flags.writeable else None
