"""Puts a model back as it was: what experiments on it stand on."""

import copy
import random
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradscope.capture.edges import tensors

_CONTAINERS = (list, dict, set, OrderedDict)


@contextmanager
def preserved(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, batch: object
) -> Iterator[None]:
    """Put everything back, bit for bit, when the block is left.

    That is: parameters, buffers and tensors kept as plain attributes; `.grad` and `requires_grad`;
    the attributes of every module, train and eval flags among them; the optimizer's state and
    groups; the batch; and the random states of torch, its devices, `random` and numpy.
    """
    saved_tensors = [_SavedTensor.of(tensor) for tensor in _tensors_of(model, optimizer, batch)]
    modules = [_SavedAttributes.of(module) for module in model.modules()]
    state = None if optimizer is None else _SavedOptimizer.of(optimizer)
    random_states = _RandomStates.now()
    try:
        yield
    finally:
        random_states.restore()
        if state is not None:
            state.restore()
        for attributes in modules:
            attributes.restore()
        for saved in saved_tensors:
            saved.restore()


def _tensors_of(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, batch: object
) -> Iterable[Tensor]:
    found: dict[int, Tensor] = {}
    for module in model.modules():
        for tensor in tensors((module._parameters, module._buffers, vars(module))):
            found[id(tensor)] = tensor
    if optimizer is not None:
        held = [group["params"] for group in optimizer.param_groups]
        for tensor in tensors((held, list(optimizer.state.values()))):
            found[id(tensor)] = tensor
    for tensor in tensors(batch):
        found[id(tensor)] = tensor
    return found.values()


@dataclass(slots=True)
class _SavedTensor:
    tensor: Tensor
    values: Tensor
    version: int
    grad: Tensor | None
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Tensor) -> "_SavedTensor":
        values = tensor.detach().clone()
        grad = tensor.grad if tensor.is_leaf else None
        return cls(tensor, values, tensor._version, grad, tensor.requires_grad)

    def restore(self) -> None:
        tensor = self.tensor
        if tensor.shape != self.values.shape or tensor.dtype != self.values.dtype:
            tensor.data = self.values
        elif tensor._version != self.version or not _equal(tensor, self.values):
            with torch.no_grad():
                tensor.copy_(self.values)
        if tensor.is_leaf:
            tensor.requires_grad_(self.requires_grad)
            tensor.grad = self.grad


def _equal(tensor: Tensor, values: Tensor) -> bool:
    # Some kernels, batch normalisation's among them, write without counting the version on.
    return tensor.layout is torch.strided and torch.equal(tensor.detach(), values)


@dataclass(slots=True)
class _SavedAttributes:
    module: nn.Module
    attributes: dict[str, object]
    containers: list[tuple[object, object]]
    """Containers that are attributes, and copies of them."""

    @classmethod
    def of(cls, module: nn.Module) -> "_SavedAttributes":
        attributes = dict(vars(module))
        containers: list[tuple[object, object]] = [
            (value, copy.copy(value)) for value in attributes.values() if type(value) in _CONTAINERS
        ]
        return cls(module, attributes, containers)

    def restore(self) -> None:
        present = vars(self.module)
        present.clear()
        present.update(self.attributes)
        for container, content in self.containers:
            _refill(container, content)


@dataclass(slots=True)
class _SavedOptimizer:
    optimizer: torch.optim.Optimizer
    state: list[tuple[Tensor, dict[str, object], dict[str, object]]]
    groups: list[tuple[dict[str, object], dict[str, object]]]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> "_SavedOptimizer":
        state = [(key, values, dict(values)) for key, values in optimizer.state.items()]
        return cls(optimizer, state, [(group, dict(group)) for group in optimizer.param_groups])

    def restore(self) -> None:
        self.optimizer.state.clear()
        for key, values, content in self.state:
            _refill(values, content)
            self.optimizer.state[key] = values
        self.optimizer.param_groups[:] = [group for group, _ in self.groups]
        for group, content in self.groups:
            _refill(group, content)


def _refill(container: object, content: object) -> None:
    """Give a list, dict or set its former content."""
    if isinstance(container, list) and isinstance(content, list):
        container[:] = content
    if isinstance(container, dict | set) and isinstance(content, dict | set):
        container.clear()
        container.update(content)


@dataclass(slots=True)
class _RandomStates:
    torch_state: Tensor
    devices: list[Tensor]
    python: object
    numpy: object

    @classmethod
    def now(cls) -> "_RandomStates":
        numpy = sys.modules.get("numpy")
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            random.getstate(),
            None if numpy is None else numpy.random.get_state(),
        )

    def restore(self) -> None:
        torch.set_rng_state(self.torch_state)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)
        random.setstate(self.python)  # type: ignore[arg-type]
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
