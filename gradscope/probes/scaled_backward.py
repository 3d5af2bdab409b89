"""Checks whether half precision underflows gradients, by a backward from a larger loss.

A gradient multiplied by a power of two keeps all its digits. An element that is zero only before
was too small for its dtype.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.compiler import is_traced
from gradscope.capture.interpreter import uncounted
from gradscope.capture.reading import NotReadable, elements, is_plain
from gradscope.capture.source.lines import Caller, Line
from gradscope.capture.step.graph import Graph
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.failures import FlushedGradient, FlushRecord

# The first is the initial scale of torch's `GradScaler`.
_FACTORS = (2.0**16, 2.0**12, 2.0**8, 2.0**4)
_NARROW = tuple(
    dtype
    for name in (
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float16",
        "bfloat16",
    )
    if (dtype := getattr(torch, name, None)) is not None
)
"""Types of less than 32 bits, the narrowest range first."""


def probe_half_precision(context: ProbeContext) -> str | None:
    """Compare the gradients with those of a larger loss, if any use half precision."""
    dtype = narrowest(context.capture.graph)
    if dtype is None:
        return None
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    try:
        with autocast_lines() as lines:
            loss = context.forward().loss
    except GradscopeError as error:
        return f"the forward raised when it was repeated: {error.what}"
    if loss.numel() != 1:
        return "backward does not start from a loss"
    positions = [
        p for p in sorted(context.measured.reached) if context.named.parameters[p].requires_grad
    ]
    scaled = scaled_gradients(loss, [context.named.parameters[position] for position in positions])
    if isinstance(scaled, str):
        return scaled
    note_flushed(context, dtype, lines, scaled, positions)
    return None


def note_flushed(
    context: ProbeContext,
    dtype: torch.dtype,
    lines: "AutocastLines",
    scaled: "Scaled",
    positions: list[int],
) -> None:
    """Record which gradients lost elements that a larger loss keeps.

    Args:
        context: State after the backward, with the gradients of the unscaled loss in the
            parameters.
        dtype: The narrowest dtype that they passed through.
        lines: Lines that entered `torch.autocast`.
        scaled: The gradients of a larger loss.
        positions: Indices of their parameters.
    """
    line = next((line for line, chosen in lines if chosen is dtype), None)
    context.assembler.note(
        FlushRecord(
            dtype=str(dtype).removeprefix("torch."),
            factor=scaled.factor,
            site=context.assembler.site_of(line or _first_cast(context, dtype)),
            gradients=tuple(
                _compared(position, context.named.parameters[position].grad, gradient)
                for position, gradient in zip(positions, scaled.gradients, strict=True)
                if gradient is not None
            ),
        )
    )


class Scaled(NamedTuple):
    """The gradients of a loss that was scaled up."""

    factor: float
    gradients: tuple[Tensor | None, ...]


class AutocastLines(list[tuple[Line, torch.dtype]]):
    """The lines that entered `torch.autocast`, with their dtypes."""


def narrowest(graph: Graph) -> torch.dtype | None:
    """Return the narrowest half-precision dtype among the tensors of a graph."""
    met = {
        metadata.dtype
        for node in graph.nodes
        for metadata in node._input_metadata
        if not metadata.is_nested_tensor
    }
    return next((dtype for dtype in _NARROW if dtype in met), None)


def _first_cast(context: ProbeContext, dtype: torch.dtype) -> Line | None:
    """Return the line of the first operation that itself casts to a dtype."""
    graph = context.capture.graph
    casts = [
        node
        for index, node in enumerate(graph.nodes)
        if graph.operations[index] == "ToCopyBackward0" and node._input_metadata[0].dtype is dtype
    ]
    first = min(casts, key=lambda node: node._sequence_nr(), default=None)
    return None if first is None else context.capture.line_of(first)


def scaled_gradients(loss: Tensor, parameters: list[torch.nn.Parameter]) -> Scaled | str:
    """Return the gradients of the loss times the largest factor without overflow.

    Returns:
        The gradients, or why there are none.
    """
    # The largest first: it finds most of the lost elements, and may overflow.
    for factor in _FACTORS:
        try:
            gradients = torch.autograd.grad(
                loss,
                parameters,
                torch.full_like(loss, factor),
                retain_graph=True,
                allow_unused=True,
            )
        except RuntimeError as error:  # for example under a reentrant checkpoint
            return f"backward raised when it was repeated: {str(error).splitlines()[0]}"
        if all(gradient is None or _is_finite(gradient) for gradient in gradients):
            return Scaled(factor, gradients)
    return "gradients overflow with a larger loss"


def _is_finite(gradient: Tensor) -> bool:
    try:
        return bool(elements(gradient).values.isfinite().all())
    except NotReadable:
        return False


def _compared(position: int, before: Tensor | None, after: Tensor) -> FlushedGradient:
    if before is None or not (is_plain(before) and is_plain(after)):
        return FlushedGradient(parameter=position, elements=0, flushed=0)
    lives = after != 0
    return FlushedGradient(
        parameter=position,
        elements=int(lives.sum()),
        flushed=int((lives & (before == 0)).sum()),
    )


@contextmanager
def autocast_lines() -> Iterator[AutocastLines]:
    """Record the lines that enter `torch.autocast` while the block runs."""
    caller, found = Caller(), AutocastLines()
    # On the class, because scripts make a context per step, and libraries hold their own.
    original = torch.autocast.__enter__

    @uncounted
    def noted(autocast: torch.autocast) -> object:
        line = None if is_traced() else caller.line(sys._getframe(1))
        if line is not None and autocast._enabled and autocast.fast_dtype is not None:
            found.append((line, autocast.fast_dtype))
        return original(autocast)  # type: ignore[no-untyped-call]

    torch.autocast.__enter__ = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        if torch.autocast.__enter__ is noted:  # else other code has replaced it since
            torch.autocast.__enter__ = original  # type: ignore[method-assign]
