"""Observes targets that lie beyond the range of a prediction, or that are no probabilities."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
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
"""Maximum number of comparisons, or of calls, that are kept."""
_CROSS_ENTROPY = "cross_entropy"
_TOLERANCE = 0.05
"""Distance of a sum from 1 that counts as rounding, as of targets in bfloat16."""
_MOST_ELEMENTS = 2**24


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
    one = argument(args, given, 0, "input")
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


class ProbabilityTargets(NamedTuple):
    """Targets of a cross-entropy that are no probabilities."""

    line: Line
    examples: int
    several: int
    """Number of examples with two classes or more, whose shares add up to more than 1."""
    largest: float
    """Largest sum of an example."""
    least: float
    """Smallest share."""
    are_binary: bool
    """Whether all shares are 0 or 1."""


class ProbabilityTargetObserver(Observer):
    """Adds up the shares of each example."""

    names = frozenset({_CROSS_ENTROPY})

    def __init__(self) -> None:
        self.found: list[ProbabilityTargets] = []

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether the targets are shares: numbers of the same shape as the logits."""
        return len(self.found) < _MOST and _targets(args, kwargs) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a call whose shares are negative or add up to more than 1."""
        targets = _targets(args, kwargs)
        if targets is None or line is None or not has_numbers(targets):
            return
        shares = targets.detach().double()
        sums = shares.sum(min(1, shares.ndim - 1)).flatten()
        classes = (shares != 0).sum(min(1, shares.ndim - 1)).flatten()
        several = int(((sums > 1 + _TOLERANCE) & (classes > 1)).sum())
        least = float(shares.min())
        if several or least < 0:
            are_binary = bool(((shares == 0) | (shares == 1)).all())
            self.found.append(
                ProbabilityTargets(
                    line, sums.numel(), several, float(sums.max()), least, are_binary
                )
            )

    def close(self) -> None:
        """Forget everything."""
        self.found.clear()


def _targets(args: Args, kwargs: Kwargs) -> Tensor | None:
    given = kwargs or {}
    logits = argument(args, given, 0, "input")
    targets = argument(args, given, 1, "target")
    if not isinstance(logits, Tensor) or not isinstance(targets, Tensor):
        return None
    is_share = torch.is_floating_point(targets) and not targets.is_nested and targets.ndim > 0
    if not is_share or logits.shape != targets.shape or targets.requires_grad:
        return None
    return targets if 0 < targets.numel() <= _MOST_ELEMENTS and logits.requires_grad else None
