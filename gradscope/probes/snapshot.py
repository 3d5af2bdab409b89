"""Restores a model after experiments, with the mutable state that its attributes reach."""

import copy
import dataclasses
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from gradscope.capture.reading import has_freed_memory
from gradscope.target import members

_CONTAINERS = frozenset((list, dict, set, deque, OrderedDict, defaultdict, Counter))
_LISTS, _TABLES = (list, deque), (dict, set)

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
        # Shallow, because what is inside is saved by itself, and must stay the same objects.
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
    if isinstance(container, _LISTS) and isinstance(content, _LISTS):
        container.clear()
        container.extend(content)
    elif isinstance(container, _TABLES) and isinstance(content, _TABLES):
        container.clear()
        container.update(content)


def _scripted(value: object) -> list[Tensor]:
    """Return the tensors that TorchScript holds outside of Python's attributes."""
    if not isinstance(value, torch.jit.ScriptModule):
        return []
    buffers = (buffer for _, buffer in members.named_buffers(value))
    return [*members.parameters(value), *buffers]


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


_UNCOUNTED = -1
"""Version of a tensor that does not count its versions."""


@contextmanager
def preserved(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, *others: object
) -> Iterator[None]:
    """Restore everything, bit for bit, when the block ends.

    This covers: parameters, buffers and tensors stored as plain attributes; `.grad` and
    `requires_grad`; the attributes of every module, train and eval flags among them, with the
    containers, arrays and random generators in them; the optimizer's state and groups; the same of
    all other arguments, such as the batch and a loss; and the random states of torch, its devices,
    `random` and numpy.
    """
    contents = contents_of(model, others, optimizer)
    saved_tensors = [_SavedTensor.of(tensor) for tensor in contents.tensors]
    random_states = RandomStates.now()
    try:
        yield
    finally:
        random_states.restore()
        contents.restore()
        for saved in saved_tensors:
            saved.restore()
        _set_versions([saved.values for saved in saved_tensors])


@dataclass(slots=True)
class _SavedValues:
    tensor: Tensor
    position: Tensor
    """Alias of the tensor's own elements: `tensor.data = …` does not move them."""
    values: Tensor | None
    """None if its memory was freed."""
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> "_SavedValues":
        # FSDP frees the memory of gathered weights: there is nothing to save or restore.
        values = None if has_freed_memory(tensor) else tensor.detach().clone()
        return cls(tensor, tensor.detach(), values, _version(tensor))

    def restore(self) -> None:
        tensor, values = self.tensor, self.values
        if values is None or has_freed_memory(tensor):
            return
        # After `tensor.data = …` in the experiment, a copy would go to that assignment's memory.
        if not _fits(tensor, self.position):
            tensor.data = self.position
        if _version(tensor) == self.version and _equal(tensor, values):
            return
        # An inference tensor can be written to only in inference mode.
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            if tensor.layout is torch.sparse_csr:  # its elements may be others by now
                tensor.resize_as_sparse_(values)
            stored = _stored_once(tensor, tensor)
            # torch refuses writes to tensors of which several elements share memory.
            stored.copy_(_stored_once(values, tensor))


def _set_versions(saved: list[_SavedValues]) -> None:
    """Reset the versions of tensors with restored elements.

    Otherwise, graphs that the user made before would refuse backward.
    """
    counted = [one for one in saved if one.version != _UNCOUNTED]
    tensors = tuple(one.tensor for one in counted)
    versions = tuple(one.version for one in counted)
    # There is no public way to write without raising the version.
    torch._C._autograd._unsafe_set_version_counter(tensors, versions)


def _stored_once(values: Tensor, like: Tensor) -> Tensor:
    """Return a tensor without the dimensions along which `like` stores its elements once."""
    if like.layout is torch.strided and not like.is_nested:
        for dim, stride in enumerate(like.stride()):
            if stride == 0 and values.shape[dim] > 1:
                values = values.narrow(dim, 0, 1)
    return values


@dataclass(slots=True)
class _SavedTensor:
    values: _SavedValues
    requires_grad: bool
    grad: _SavedValues | None

    @classmethod
    def of(cls, tensor: Tensor) -> "_SavedTensor":
        grad = tensor.grad if tensor.is_leaf else None
        return cls(
            _SavedValues.of(tensor),
            tensor.requires_grad,
            None if grad is None else _SavedValues.of(grad),
        )

    def restore(self) -> None:
        self.values.restore()
        tensor = self.values.tensor
        # torch allows changes of `requires_grad` on leaves only.
        if not tensor.is_leaf:
            return
        if tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if self.grad is None:
            tensor.grad = None
        else:
            self.grad.restore()
            # The original object: the script may hold references to it.
            tensor.grad = self.grad.tensor


def _version(tensor: Tensor) -> int:
    return _UNCOUNTED if tensor.is_inference() else tensor._version


def _fits(tensor: Tensor, position: Tensor) -> bool:
    """Return whether a tensor still has its original elements, whatever their values."""
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_meta:
        return True
    return (
        tensor.data_ptr() == position.data_ptr()
        and tensor.shape == position.shape
        and tensor.dtype == position.dtype
        and tensor.stride() == position.stride()
    )


def _equal(tensor: Tensor, values: Tensor) -> bool:
    # Some kernels, such as batch normalization's, write without incrementing the version.
    if tensor.is_meta:
        return True
    if tensor.layout is not torch.strided or tensor.is_nested:
        return False
    return torch.equal(tensor.detach(), values)


@dataclass(slots=True)
class RandomStates:
    """The states of every random generator that a model is likely to use."""

    torch_state: Tensor
    devices: list[Tensor]
    python: object
    numpy: object

    @classmethod
    def now(cls) -> "RandomStates":
        """Return the current states."""
        # If nothing has imported numpy, nothing has used its generator.
        numpy = sys.modules.get("numpy")
        return cls(
            torch.get_rng_state(),
            # Reading the states of devices would initialize CUDA, which prevents a later fork.
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            random.getstate(),
            None if numpy is None else numpy.random.get_state(),
        )

    def equal(self, other: "RandomStates") -> bool:
        """Return whether every generator has the same state."""
        return (
            torch.equal(self.torch_state, other.torch_state)
            and len(self.devices) == len(other.devices)
            and all(map(torch.equal, self.devices, other.devices))
            and self.python == other.python
            and _plain(self.numpy) == _plain(other.numpy)
        )

    def restore(self) -> None:
        """Restore the state of every generator."""
        torch.set_rng_state(self.torch_state)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)
        random.setstate(self.python)  # type: ignore[arg-type]
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


def _plain(state: object) -> object:
    """Return numpy's random state, a tuple with an array in it, in a comparable form."""
    if not isinstance(state, tuple):
        return state
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in state]
