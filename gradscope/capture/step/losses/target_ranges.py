"""Observes regressions whose prediction is bounded, and the targets that lie beyond its bounds."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.step.comparisons import REGRESSIONS
from gradscope.capture.step.graph import VIEW_OPERATIONS, Edge, edges, without_node

_WITH_LOGITS = "binary_cross_entropy_with_logits"
_DIFFERENCES = frozenset({"__rsub__", "rsub", "sub", "subtract"})

_HANDING_ON = VIEW_OPERATIONS | {
    "CloneBackward0",
    "ExpandBackward0",
    "GatherBackward0",
    "IndexBackward0",
    "IndexSelectBackward0",
    "MaskedSelectBackward0",
    "SelectBackward0",
    "SliceBackward0",
    "SplitBackward0",
    "SplitWithSizesBackward0",
    "ToCopyBackward0",
    "UnbindBackward0",
}
_RANGES = {
    "ExpBackward0": ("exp", 0.0, math.inf),
    "HardsigmoidBackward0": ("hardsigmoid", 0.0, 1.0),
    "ReluBackward0": ("relu", 0.0, math.inf),
    "SigmoidBackward0": ("sigmoid", 0.0, 1.0),
    "SoftmaxBackward0": ("softmax", 0.0, 1.0),
    "SoftplusBackward0": ("softplus", 0.0, math.inf),
    "TanhBackward0": ("tanh", -1.0, 1.0),
}
"""Name and range of the activations that are bounded."""
_CLAMPS = {
    "ClampBackward1": ("clamp", "_saved_min", "_saved_max"),
    "ClampMinBackward0": ("clamp", "_saved_min", None),
    "ClampMaxBackward0": ("clamp", None, "_saved_max"),
    "HardtanhBackward0": ("hardtanh", "_saved_min_val", "_saved_max_val"),
}
_MOST_NODES = 16
"""Maximum number of operations between a prediction and its last activation."""
_LEAST_ELEMENTS = 16
"""Number of targets below which their range says little."""
_MOST = 100
"""Maximum number of comparisons that are kept."""


class BoundedPrediction(NamedTuple):
    """A comparison of data with a prediction that has bounds, some data lying beyond them."""

    line: Line
    operation: str
    """Operation that bounds the prediction; the loss function if it does so itself."""
    bound: Edge | None
    """Result of that operation; None for the loss function."""
    result: Edge
    low: float
    high: float
    elements: int
    outside: int
    """Number of targets beyond the bounds."""
    lost: float
    """Mean squared distance of the targets from the range, over their variance."""
    least: float
    """Smallest target."""
    most: float


class _Range(NamedTuple):
    operation: str
    node: Node | None
    low: float
    high: float


class TargetRangeObserver(Observer):
    """Compares the targets of regressions with the range of the prediction's last activation."""

    names = REGRESSIONS | _DIFFERENCES | {_WITH_LOGITS}

    def __init__(self) -> None:
        self.found: list[BoundedPrediction] = []

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether data are compared with a prediction of the same shape."""
        if len(self.found) >= _MOST or not torch.is_grad_enabled():
            return False
        return _sides(args, kwargs) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a call if some of the data lie beyond the bounds of the prediction."""
        sides = _sides(args, kwargs)
        if sides is None or line is None or not isinstance(result, Tensor):
            return
        prediction, target = sides
        bounds = _Range(name, None, 0.0, 1.0) if name == _WITH_LOGITS else _range_of(prediction)
        outcome = next(map(without_node, edges(result)), None)
        if bounds is None or outcome is None or not has_numbers(target):
            return
        # In float64, targets at a bound are not rounded beyond it.
        values = target.detach().double()
        beyond = (bounds.low - values).clamp(min=0) + (values - bounds.high).clamp(min=0)
        outside, variance = int((beyond > 0).sum()), float(values.var(correction=0))
        squares = float(beyond.square().mean())
        if not outside or not math.isfinite(squares):
            return
        self.found.append(
            BoundedPrediction(
                line=line,
                operation=bounds.operation,
                bound=None if bounds.node is None else without_node(Edge(bounds.node, 0, None)),
                result=outcome,
                low=bounds.low,
                high=bounds.high,
                elements=values.numel(),
                outside=outside,
                lost=squares / variance if variance else math.inf,
                least=float(values.min()),
                most=float(values.max()),
            )
        )

    def close(self) -> None:
        """Forget everything."""
        self.found.clear()


def _sides(args: Args, kwargs: Kwargs) -> tuple[Tensor, Tensor] | None:
    """Return prediction and data of a comparison, if one side has a gradient and the other none."""
    given = kwargs or {}
    one = args[0] if args else given.get("input")
    other = args[1] if len(args) > 1 else given.get("target", given.get("other"))
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return None
    if one.requires_grad == other.requires_grad:
        return None
    prediction, target = (one, other) if one.requires_grad else (other, one)
    fits = prediction.shape == target.shape and target.numel() >= _LEAST_ELEMENTS
    return (prediction, target) if fits and target.is_floating_point() else None


def _range_of(prediction: Tensor) -> _Range | None:
    """Return the range of the last activation, through selections and constant factors."""
    node, factor = prediction.grad_fn, 1.0
    for _ in range(_MOST_NODES):
        if node is None:
            return None
        bounds = _bounds_of(node)
        if bounds is not None:
            return _scaled(bounds, factor)
        multiple = _multiple_of(node)
        if multiple is None:
            return None
        factor *= multiple
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return None


def _bounds_of(node: Node) -> _Range | None:
    """Return the range of a node's result; None if it is no bounded function."""
    name = node.name()
    if name in _RANGES:
        operation, low, high = _RANGES[name]
    elif name in _CLAMPS:
        operation, least, most = _CLAMPS[name]
        low, high = _bound(node, least, -math.inf), _bound(node, most, math.inf)
    else:
        return None
    return _Range(operation, node, low, high)


def _multiple_of(node: Node) -> float | None:
    """Return the number that a node multiplies its input with; None if it does something else."""
    name = node.name()
    if name == "NegBackward0":
        return -1.0
    if name in ("MulBackward0", "DivBackward0"):
        number = _constant(node)
        if not number:
            return None
        return number if name == "MulBackward0" else 1 / number
    return 1.0 if name in _HANDING_ON else None


def _scaled(found: _Range, factor: float) -> _Range:
    ends = sorted((found.low * factor, found.high * factor))
    return found._replace(low=ends[0], high=ends[1])


def _bound(node: Node, name: str | None, default: float) -> float:
    """Return a bound of a clamp, which may have been given as None."""
    value = None if name is None else getattr(node, name, None)
    return float(value) if isinstance(value, int | float) else default


def _constant(node: Node) -> float | None:
    """Return the number that a product or quotient with one gradient was made with."""
    # A product of two tensors with gradients has no constant factor.
    if sum(one is not None for one, _ in node.next_functions) != 1:
        return None
    try:
        other = getattr(node, "_saved_other", None)
    except RuntimeError:  # freed, or written to since
        return None
    if not isinstance(other, Tensor) or other.numel() != 1 or not has_numbers(other):
        return None
    return float(other)
