"""Measures the values of every tensor of the graph in the forward."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.arithmetic import (
    BLOCK,
    SAFE_NORMS,
    norm_in_double,
    norms_on_device,
    zeros_on_device,
)
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.activations import ActivationWatch
from gradscope.probes.forward.logits import LogitWatch
from gradscope.probes.forward.operations import (
    NodeNumber,
    Operation,
    OperationMode,
    Positions,
    node_number,
    reference,
    run_again,
)
from gradscope.recording.evidence.forward import ForwardStat


class Values(NamedTuple):
    """Statistics of a tensor's elements."""

    norm: float
    minimum: float
    """Minimum of the finite elements; NaN if there are none."""
    maximum: float
    zeros: int
    nonfinite: int


class OutputWatches:
    """Measures what single kinds of operations return."""

    def __init__(self) -> None:
        self._logits = LogitWatch()
        self._watches = (ActivationWatch(), self._logits)

    def see(self, operation: Operation, tensor: Tensor, number: NodeNumber) -> None:
        """Measure an output that is part of the graph."""
        for watch in self._watches:
            watch.see(operation, tensor, number)

    def see_view(self, operation: Operation, tensor: Tensor, number: NodeNumber) -> None:
        """Measure an output that is a view, with which calls of several operations may end."""
        self._logits.see_attention(operation, tensor, number)

    def records(self, context: ProbeContext, positions: Positions) -> Iterator[object]:
        """Yield the records of measurements whose position in the recording is known."""
        for watch in self._watches:
            yield from watch.records(context, positions)


def probe_forward(context: ProbeContext) -> str | None:
    """Record the values of each tensor of the first step's graph."""
    mode = _ValuesMode()
    positions = run_again(context, mode)
    if isinstance(positions, str):
        return positions
    note_forward(context, mode.values, mode.watches, positions)
    return None


def note_forward(
    context: ProbeContext,
    values: Mapping[NodeNumber, tuple[int, Values]],
    watches: OutputWatches,
    positions: Positions,
) -> None:
    """Record the values of tensors of the graph, with their number of elements."""
    for number, (numel, found) in values.items():
        tensor = reference(positions, number)
        if tensor is not None:
            context.assembler.note(ForwardStat(tensor=tensor, numel=numel, **found._asdict()))
    context.assembler.note(*watches.records(context, positions))


class _ValuesMode(OperationMode):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[NodeNumber, tuple[int, Values]] = {}
        self.watches = OutputWatches()

    def settled(self, operation: Operation) -> None:
        """Measure the outputs of an operation that is in the graph."""
        # A view has the elements of its base, which were measured there.
        if operation.is_view:
            return
        for tensor in operation.outputs:
            number = node_number(tensor)
            if number is not None:
                self.values[number] = tensor.numel(), values_of(tensor)
                self.watches.see(operation, tensor, number)


def values_of(tensor: Tensor) -> Values:
    """Measure the norm and extremes of a tensor's elements exactly."""
    flat = tensor.detach().reshape(-1)
    if not flat.numel():
        return Values(0.0, math.nan, math.nan, 0, 0)
    low, high = torch.aminmax(flat)
    minimum, maximum = float(low), float(high)
    if math.isfinite(minimum) and math.isfinite(maximum):
        zeros = _zeros(flat) if minimum <= 0 <= maximum else 0
        return Values(_norm(flat, max(-minimum, maximum)), minimum, maximum, zeros, 0)
    # Only here, because this copy is far slower than the extremes.
    finite = flat[torch.isfinite(flat)]
    norm = math.nan if bool(flat.isnan().any()) else math.inf
    if not finite.numel():
        return Values(norm, math.nan, math.nan, 0, flat.numel())
    low, high = torch.aminmax(finite)
    broken = flat.numel() - finite.numel()
    return Values(norm, float(low), float(high), _zeros(finite), broken)


def _zeros(flat: Tensor) -> int:
    """Count zeros among finite elements: by signs, block by block, by far the fastest way."""
    if not flat.is_cpu:
        return int(zeros_on_device(flat))
    signs = (float(block.sign().abs_().sum(dtype=torch.float32)) for block in flat.split(BLOCK))
    return flat.numel() - int(sum(signs))


def _norm(flat: Tensor, magnitude: float) -> float:
    """Return the norm of finite elements whose squares may over- or underflow in float64."""
    if not flat.is_cpu:
        return float(norms_on_device([flat])[0])
    if flat.dtype not in SAFE_NORMS:
        flat = flat.float()
    low, high = SAFE_NORMS[flat.dtype]
    if low < magnitude < high:
        return float(torch.linalg.vector_norm(flat))
    return norm_in_double(flat)
