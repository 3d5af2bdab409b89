"""Finds saturated activations: units never active, outputs at the ends of their range."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.observed_calls import argument
from gradscope.capture.reading import is_plain_float
from gradscope.capture.step.graph import VIEW_OPERATIONS
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.operations import NodeNumber, Operation, Positions, reference
from gradscope.recording.evidence.forward import SaturationRecord, UnitRecord

STEEP = 0.05
"""Share of the maximum derivative below which an activation counts as saturated."""
CERTAIN = 0.99
"""Largest entry of a softmax above which its row counts as saturated."""
MASKED = -9e3
"""Scores this far below the maximum of their row are masked, for example by adding -10,000."""
_REACH = 12
"""Maximum number of nodes between an activation and its layer."""

_FLAT = frozenset({"clamp", "clamp_min", "hardtanh", "relu", "relu6", "threshold"})
_CHANNELS_FIRST = ("Convolution", "CudnnBatchNorm", "NativeBatchNorm", "NativeGroupNorm")
_CHANNELS_LAST = ("Addmm", "Mm", "NativeLayerNorm")
_TURNS = frozenset({"PermuteBackward0", "TransposeBackward0"})
_PASSED_THROUGH = (
    "AddBackward",
    "CloneBackward",
    "CopySlices",
    "CudnnBatchNorm",
    "NativeBatchNorm",
    "NativeDropout",
    "NativeGroupNorm",
    "NativeLayerNorm",
    "ToCopyBackward",
)
"""Operations allowed between a layer and its activation. Products are not, except with a gain."""


@dataclass(slots=True)
class _Layer:
    """The layer before an activation."""

    leaves: tuple[int, ...]
    """`id`s of its trained parameters."""
    unit_dim: int


@dataclass(slots=True)
class _Units:
    operation: str
    leaves: tuple[int, ...]
    inactive: Tensor
    rows: int = 0
    samples: int = 0
    outputs: list[NodeNumber] = field(default_factory=list)


class ActivationWatch:
    """Measures the activations among the operations of a forward."""

    def __init__(self) -> None:
        self._units: dict[tuple[object, ...], _Units] = {}
        self._saturated: list[tuple[NodeNumber, str, int, int]] = []

    def see(self, operation: Operation, tensor: Tensor, number: NodeNumber) -> None:
        """Measure an output that is part of the graph."""
        plain = operation.name.strip("_")
        if not tensor.numel():
            return
        if plain in _FLAT:
            self._see_units(operation, plain, tensor, number)
        elif plain in ("sigmoid", "tanh"):
            value = tensor.detach()
            # Derivatives relative to their maximum, which is 1 for tanh and 1/4 for sigmoid.
            steepness = 1 - value.square() if plain == "tanh" else 4 * value * (1 - value)
            saturated = int((steepness < STEEP).sum())
            self._saturated.append((number, plain, tensor.numel(), saturated))
        elif plain == "softmax":
            rows, saturated = _certain_rows(operation, tensor.detach())
            self._saturated.append((number, plain, rows, saturated))

    def records(
        self, context: ProbeContext, positions: Positions
    ) -> Iterator[UnitRecord | SaturationRecord]:
        """Yield the records of measurements whose position in the recording is known."""
        indices = {id(parameter): i for i, parameter in enumerate(context.named.parameters)}
        for one in self._units.values():
            found = tuple(ref for n in one.outputs if (ref := reference(positions, n)) is not None)
            if found:
                yield UnitRecord(
                    tensors=found,
                    operation=one.operation,
                    parameters=tuple(sorted(indices[i] for i in one.leaves if i in indices)),
                    units=one.inactive.numel(),
                    inactive=int(one.inactive.sum()),
                    rows=one.rows,
                    samples=one.samples,
                )
        for number, operation, elements, saturated in self._saturated:
            tensor = reference(positions, number)
            if tensor is not None and elements:
                yield SaturationRecord(
                    tensor=tensor, operation=operation, elements=elements, saturated=saturated
                )

    def _see_units(
        self, operation: Operation, plain: str, tensor: Tensor, number: NodeNumber
    ) -> None:
        layer = None if tensor.dim() < 2 else _layer(tensor)
        if layer is None:
            return
        units = tensor.shape[layer.unit_dim]
        others = [dim for dim in range(tensor.dim()) if dim != layer.unit_dim % tensor.dim()]
        inactive = _inactive(operation, plain, tensor.detach(), others)
        if inactive is None:
            return
        key = (plain, layer.leaves, units)
        known = self._units.get(key)
        if known is None:
            known = self._units[key] = _Units(plain, layer.leaves, inactive)
        # A shared layer runs several times: a unit is dead only if it is inactive in every call.
        known.inactive = known.inactive & inactive
        known.rows += tensor.numel() // units
        known.samples += tensor.shape[0]
        known.outputs.append(number)


def _inactive(operation: Operation, plain: str, output: Tensor, others: list[int]) -> Tensor | None:
    """Return by unit whether every derivative is zero, None for other activations.

    Args:
        operation: The activation.
        plain: Name of the operation without underscores.
        output: Output of the operation.
        others: All dimensions except that of the units.
    """
    numbers = [value for value in operation.args[1:] if isinstance(value, int | float)]
    low, high = 0.0, math.inf
    if plain == "threshold":
        low = float(numbers[1])
    elif plain == "hardtanh":
        low, high = numbers if len(numbers) == 2 else (-1.0, 1.0)
    elif plain != "relu":
        given = (*operation.args[1:], operation.kwargs.get("min"), operation.kwargs.get("max"))
        bounds = [float(value) for value in given if isinstance(value, int | float)]
        if bounds[:1] != [0] or _has_no_minimum(operation, plain):
            return None  # other bounds only limit the range, and are no activation
        high = bounds[1] if len(bounds) > 1 else math.inf
    if high == math.inf:
        # One reduction is cheaper than a comparison of all elements.
        return output.amax(dim=others) <= low
    return ((output <= low) | (output >= high)).all(dim=others)


def _has_no_minimum(operation: Operation, plain: str) -> bool:
    first = argument(operation.args, operation.kwargs, 1, "min")
    return plain == "clamp" and first is None


def _certain_rows(operation: Operation, output: Tensor) -> tuple[int, int]:
    """Return the number of softmax rows with several unmasked entries, and of saturated ones."""
    dim, scores = operation.args[1], operation.args[0]
    if not isinstance(dim, int) or not isinstance(scores, Tensor) or output.dim() == 0:
        return 0, 0
    if not is_plain_float(scores):
        return 0, 0
    scores = scores.detach()
    largest = scores.amax(dim=dim, keepdim=True)
    open_entries = (scores - largest > MASKED).sum(dim=dim)
    # A row with one open entry, as the first one of a causal mask, is certain by construction.
    counted = open_entries > 1
    certain = output.amax(dim=dim) > CERTAIN
    return int(counted.sum()), int((certain & counted).sum())


@dataclass(slots=True)
class _Path:
    """A path back from an activation."""

    node: Node
    turned: bool = False
    """Whether the path transposes dimensions."""
    channels_first: bool | None = None
    """Whether units are in dimension 1; None if unknown."""

    def onward(self, nodes: list[Node]) -> list["_Path"]:
        return [_Path(node, self.turned, self.channels_first) for node in nodes]

    def visit(self, name: str) -> None:
        if name in _TURNS:
            # Two transpositions cancel.
            self.turned = not self.turned
        elif self.channels_first is None and name.startswith((*_CHANNELS_FIRST, *_CHANNELS_LAST)):
            self.channels_first = name.startswith(_CHANNELS_FIRST) != self.turned


def _layer(tensor: Tensor) -> _Layer | None:
    """Return the layer before an activation, with only normalization and sums in between."""
    node = tensor.grad_fn
    waiting = [] if node is None else [_Path(one) for one in _inputs(node)]
    for _ in range(_REACH):
        if not waiting:
            break
        # Breadth first: the nearest layer is the one that the activation belongs to.
        path = waiting.pop(0)
        name, inputs = type(path.node).__name__, _inputs(path.node)
        path.visit(name)
        leaves = [leaf for leaf in map(_leaf, inputs) if leaf is not None]
        scales = name.startswith("MulBackward") and leaves
        if scales or name in VIEW_OPERATIONS or name.startswith(_PASSED_THROUGH):
            waiting += path.onward([one for one in inputs if _leaf(one) is None])
        elif leaves:
            return _Layer(tuple(sorted(map(id, leaves))), 1 if path.channels_first else -1)
    return None


def _inputs(node: Node) -> list[Node]:
    return [following for following, _ in node.next_functions if following is not None]


def _leaf(node: Node) -> Tensor | None:
    """Return the leaf of a node, also through the transposition of a weight."""
    while type(node).__name__ in ("TBackward0", "TransposeBackward0", "PermuteBackward0"):
        inputs = _inputs(node)
        if not inputs:
            return None
        node = inputs[0]
    leaf = getattr(node, "variable", None)
    return leaf if isinstance(leaf, Tensor) else None
