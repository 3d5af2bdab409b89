"""Finds targets that are data plus what a network estimates, and the weights behind them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line
from gradscope.capture.step.comparisons import REGRESSIONS
from gradscope.capture.step.graph import behind, tensors
from gradscope.capture.tensor_references import TensorNotes, WeakTensor

_LAYER = "linear"
_CHOICES = frozenset(
    {"__getitem__", "amax", "amin", "gather", "index_select", "max", "min", "sum", "take_along_dim"}
)
"""Functions that choose one of several values of each row, or weigh them."""
_SUMS = frozenset({"__add__", "__radd__", "__iadd__", "add", "add_"})
_DIFFERENCES = frozenset({"__sub__", "__rsub__", "sub", "rsub"})
_LISTS = frozenset({"cat", "stack"})
_PASSED_ON = frozenset(
    {
        "__invert__",
        "__mul__",
        "__rmul__",
        "clamp",
        "clone",
        "contiguous",
        "dropout",
        "elu",
        "exp",
        "flatten",
        "float",
        "gelu",
        "layer_norm",
        "leaky_relu",
        "masked_fill",
        "maximum",
        "mean",
        "minimum",
        "mul",
        "mul_",
        "relu",
        "reshape",
        "sigmoid",
        "silu",
        "softmax",
        "squeeze",
        "tanh",
        "to",
        "unsqueeze",
        "view",
        "where",
    }
)
_DETACH = "detach"
_MOST = 16
"""Maximum number of targets, and of graphs that are searched for the weights behind a detach."""
_MOST_WEIGHTS = 64


class Bootstrap(NamedTuple):
    """A target that adds data to a network's estimate, and that a prediction is compared with."""

    line: Line
    """Line of the sum."""
    weights: tuple[WeakTensor[Tensor], ...]
    """Weights behind the estimate."""


class _Flow(NamedTuple):
    """What a tensor without a graph was computed from."""

    weights: frozenset[int]
    """By `id`."""
    is_value: bool = False
    """Whether it has one number for each row, or chosen ones."""
    line: Line | None = None
    """Line that added data to it; None if none did."""


class BootstrapObserver(Observer):
    """Follows the results of linear layers outside of the graph to the sums that are targets."""

    names = frozenset(
        {
            _LAYER,
            _DETACH,
            *_CHOICES,
            *_SUMS,
            *_DIFFERENCES,
            *_LISTS,
            *_PASSED_ON,
            *REGRESSIONS,
        }
    )

    def __init__(self) -> None:
        self.found: dict[Line, Bootstrap] = {}
        self._flows = TensorNotes[_Flow]()
        self._weights: dict[int, WeakTensor[Tensor]] = {}
        self._searches = 0

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call is a layer outside of the graph, or uses what was followed."""
        if name == _LAYER:
            return len(args) > 1 and len(self._weights) < _MOST_WEIGHTS and _is_outside(args)
        if name == _DETACH:
            given = args[0] if args else None
            return isinstance(given, Tensor) and (given.requires_grad or self._has(given))
        if not self._flows:
            return False
        given = args[0] if name in _LISTS and args else args
        operands = given if isinstance(given, tuple | list) else (given,)
        return any(map(self._has, (*operands, *(kwargs or {}).values())))

    def _has(self, value: object) -> bool:
        return id(value) in self._flows and self._flows.of(value) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        given = args[0] if args else None
        if name == _DETACH and isinstance(given, Tensor) and given.requires_grad:
            self._search(given, result)
            return
        operands = list(tensors((*args, *(kwargs or {}).values())))
        flows = [one for one in map(self._flows.of, operands) if one is not None]
        made = result[0] if isinstance(result, tuple) and result else result
        if not isinstance(made, Tensor):
            return
        if made.requires_grad:
            if name in REGRESSIONS | _DIFFERENCES:
                self._note_targets(flows)
            return
        if name == _LAYER:
            weight = args[1]
            assert isinstance(weight, Tensor)
            self._weights.setdefault(id(weight), WeakTensor(weight))
            flows.append(_Flow(frozenset({id(weight)})))
        self._flows.keep(made, self._made(name, args, operands, flows, line))

    def _made(
        self,
        name: str,
        args: Args,
        operands: list[Tensor],
        flows: list[_Flow],
        line: Line | None,
    ) -> _Flow:
        """Return what a call outside of the graph has computed."""
        weights = frozenset[int]().union(*(one.weights for one in flows))
        if name == _LAYER:
            return _Flow(weights, is_value=operands[1].shape[0] == 1)
        is_value = any(one.is_value for one in flows) or (name in _CHOICES and _chooses(args))
        known = next((one.line for one in flows if one.line is not None), None)
        is_sum = name in _SUMS and is_value and _adds_data(self._flows, operands)
        return _Flow(weights, is_value, line if is_sum else known)

    def _search(self, given: Tensor, result: object) -> None:
        """Note the weights behind a tensor of the graph that is detached."""
        if not isinstance(result, Tensor) or given.grad_fn is None or self._searches == _MOST:
            return
        self._searches += 1
        leaves = list(_leaves(given))[-_MOST_WEIGHTS:]
        for one in leaves:
            self._weights.setdefault(id(one), WeakTensor(one))
        is_value = result.ndim == 1 or (result.ndim == 2 and result.shape[-1] == 1)
        self._flows.keep(result, _Flow(frozenset(map(id, leaves)), is_value))

    def _note_targets(self, flows: Iterable[_Flow]) -> None:
        for one in flows:
            if one.line is not None and len(self.found) < _MOST:
                weights = tuple(self._weights[key] for key in sorted(one.weights))
                self.found.setdefault(one.line, Bootstrap(one.line, weights))

    def close(self) -> None:
        """Forget everything."""
        self.found = {}
        self._flows.clear()
        self._weights.clear()


def _is_outside(args: Args) -> bool:
    given, weight = args[0], args[1]
    if not isinstance(given, Tensor) or not isinstance(weight, Tensor):
        return False
    return not torch.is_grad_enabled() or not (given.requires_grad or weight.requires_grad)


def _chooses(args: Args) -> bool:
    """Return whether a call chooses single values: a slice of the features is no choice."""
    index = args[1] if len(args) > 1 else None
    parts = index if isinstance(index, tuple) else (index,)
    return not any(isinstance(one, slice) for one in parts) or any(
        isinstance(one, int | Tensor) for one in parts
    )


def _adds_data(flows: TensorNotes[_Flow], operands: list[Tensor]) -> bool:
    """Return whether one of two operands is data: floats that no network has computed."""
    if len(operands) != 2:
        return False
    data = [one for one in operands if flows.of(one) is None]
    return len(data) == 1 and data[0].is_floating_point() and data[0].ndim > 0


def _leaves(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the matrices among the leaves of a tensor's graph."""
    for node in behind([tensor.grad_fn]):
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and leaf.ndim > 1:
            yield leaf
