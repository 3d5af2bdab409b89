"""Finds where the forward's values become non-finite, and what was non-finite before."""

import math
from collections.abc import Iterable, Iterator

from torch import nn

from gradscope.capture.naming import dtype_name
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.edges import tensors
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.forward_values import values_of
from gradscope.probes.forward.nonfinite_tracker import (
    Origin,
    OriginTracker,
    Source,
    broken_of,
    operand_of,
    storage_of,
)
from gradscope.probes.forward.operations import Positions, plain_floats, reference, run_again
from gradscope.recording.evidence.failures import NonfiniteRecord, NonfiniteSource


def probe_nonfinite(context: ProbeContext) -> str | None:
    """Record the operations that made NaN or infinity, if the loss or a gradient is non-finite."""
    if _all_finite(context):
        return None
    sources = _sources(context)
    mode = OriginTracker(by_storage(sources).get)
    positions = run_again(context, mode)
    if isinstance(positions, str):
        for origin in _there_before(sources):
            of_loss = origin.index if _loss_is_broken(context) else None
            context.assembler.note(record_of(context.assembler, origin, {}, of_loss=of_loss))
        return positions
    note_origins(context, mode, positions)
    return None


def note_origins(context: ProbeContext, tracker: OriginTracker, positions: Positions) -> None:
    """Record the origins that a tracker has found."""
    of_loss = tracker.of_loss if _loss_is_broken(context) else None
    for origin in tracker.origins:
        context.assembler.note(record_of(context.assembler, origin, positions, of_loss=of_loss))


def by_storage(sources: Iterable[Source]) -> dict[int, Source]:
    """Return existing tensors by their storage."""
    return {storage_of(source.tensor): source for source in sources}


def _loss_is_broken(context: ProbeContext) -> bool:
    return context.loss is not None and not math.isfinite(context.loss)


def record_of(
    assembler: Assembler, origin: Origin, positions: Positions, *, of_loss: int | None
) -> NonfiniteRecord:
    """Return the record of an origin.

    Args:
        assembler: Assembles the records of lines.
        origin: The origin.
        positions: Positions of the nodes' records.
        of_loss: Origin of a non-finite loss.
    """
    return NonfiniteRecord(
        index=origin.index,
        operation=origin.operation,
        site=assembler.site_of(origin.line),
        tensor=reference(positions, origin.output),
        makes=origin.makes,
        source=origin.source,
        name=origin.name,
        operands=origin.operands,
        broken=origin.broken,
        dtype=origin.dtype,
        number=origin.number,
        blocked_rows=origin.blocked_rows,
        because_of=origin.because_of,
        reaches_loss=origin.index == of_loss,
    )


def _all_finite(context: ProbeContext) -> bool:
    measured = context.measured
    return (
        (context.loss is None or math.isfinite(context.loss))
        and all(not stat.is_broken for stat in measured.numbers.values())
        and all(weight is None or math.isfinite(weight) for weight in measured.weights)
    )


def _sources(context: ProbeContext) -> list[Source]:
    return sources_of(context.target.model, context.target.batch)


def sources_of(model: nn.Module, batch: object) -> list[Source]:
    """Return the input tensors of a model's forward on a batch."""
    given: list[tuple[object, NonfiniteSource, str | None]] = [
        *((tensor, "batch", None) for tensor in tensors(batch)),
        *((buffer, "buffer", name) for name, buffer in model.named_buffers()),
        *((parameter, "parameter", name) for name, parameter in model.named_parameters()),
    ]
    return [Source(one, kind, name) for all_, kind, name in given for one in plain_floats(all_)]


def _there_before(sources: list[Source]) -> Iterator[Origin]:
    """Yield the NaN in the model and the batch, which are known without a forward."""
    broken = (source for source in sources if broken_of(source.tensor) == "NaN")
    for index, source in enumerate(broken):
        yield Origin(
            index,
            "",
            None,
            "NaN",
            source.kind,
            source.name,
            operands=(operand_of(source.tensor),),
            broken=values_of(source.tensor).nonfinite,
            dtype=dtype_name(source.tensor.dtype),
        )
