"""Finds where the forward's values become non-finite, and follows NaN and infinity from there."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradscope.capture.naming import dtype_name, shape_of
from gradscope.capture.observed_calls import Args, writes_in_place
from gradscope.capture.source.lines import Caller, Line
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.graph import tensors
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward import operations
from gradscope.probes.forward.forward_values import values_of
from gradscope.probes.forward.operations import (
    NodeNumber,
    Operation,
    OperationMode,
    Positions,
    node_number,
    plain_floats,
    reference,
    run_again,
)
from gradscope.recording.evidence.failures import (
    Broken,
    NonfiniteRecord,
    NonfiniteSource,
    OperandRecord,
)
from gradscope.target import members

MOST_ORIGINS = 64
"""Maximum number of origins recorded."""

_OVERWRITING = frozenset(
    {
        "bernoulli_",
        "cauchy_",
        "copy_",
        "exponential_",
        "fill_",
        "geometric_",
        "log_normal_",
        "normal_",
        "random_",
        "uniform_",
        "zero_",
    }
)
"""Operations that overwrite a tensor whatever its content."""


class Source(NamedTuple):
    """A tensor that existed before the forward."""

    tensor: Tensor
    kind: NonfiniteSource
    name: str | None
    """Name of a parameter or buffer."""


@dataclass(slots=True)
class Origin:
    """A `NonfiniteRecord` under construction."""

    index: int
    operation: str
    line: Line | None
    makes: Broken
    source: NonfiniteSource
    name: str | None = None
    operands: tuple[OperandRecord, ...] = ()
    broken: int = 0
    dtype: str = ""
    number: float | None = None
    blocked_rows: int = 0
    because_of: int | None = None
    output: NodeNumber | None = None


@dataclass(slots=True)
class _Given:
    """An operand, measured before it may be written to."""

    tensor: Tensor
    broken: Broken | None
    record: OperandRecord | None
    """None if the operand does not change, and need not be measured yet."""


class OriginTracker(OperationMode):
    """Follows non-finite values from tensor to tensor.

    Args:
        source_of: Returns the existing tensor that has a storage.
    """

    def __init__(self, source_of: Callable[[int], Source | None]) -> None:
        super().__init__()
        self._source_of = source_of
        self._caller = Caller()
        self._given: list[_Given] = []
        self._origin_of: dict[int, int] = {}
        """Origins of non-finite values, by storage."""
        self._made: Origin | None = None
        """Result of the last operation, whose node is not known yet."""
        self.origins: list[Origin] = []
        self.of_loss: int | None = None
        """Origin of a non-finite loss."""

    def before(self, name: str, args: Args, kwargs: dict[str, object]) -> None:
        """Check the operands, some of which the operation may write to."""
        self._made = None
        inputs = args[1:] if name in _OVERWRITING else args
        # The content of `out` is overwritten, and never read.
        named = [value for key, value in kwargs.items() if key != "out"]
        in_place = writes_in_place(name)
        self._given = [
            _Given(tensor, broken_of(tensor), operand_of(tensor) if in_place else None)
            for tensor in plain_floats([*inputs, *named])
        ]

    def ran(self, operation: Operation) -> None:
        """Record the origin of non-finite values in the outputs."""
        if operation.is_view:
            return
        for tensor in operation.outputs:
            # New memory may hold anything until it is written.
            broken = None if "empty" in operation.name else broken_of(tensor)
            storage = storage_of(tensor)
            if broken is not None:
                origin = self._origin(operation, tensor, broken)
                if origin is not None:
                    self._origin_of[storage] = origin
            elif not writes_in_place(operation.name):  # it may have written to a part of it
                self._origin_of.pop(storage, None)
        self._given = []

    def settled(self, operation: Operation) -> None:
        """Record the node of the operation's result."""
        if self._made is not None:
            self._made.output = next(
                (
                    number
                    for tensor in operation.outputs
                    if broken_of(tensor) and (number := node_number(tensor))
                ),
                None,
            )

    def ended(self, loss: Tensor) -> None:
        """Record the origin of a non-finite loss."""
        super().ended(loss)
        for tensor in plain_floats(loss):
            if broken_of(tensor):
                self.of_loss = self._origin_of.get(storage_of(tensor))

    def _origin(self, operation: Operation, output: Tensor, makes: Broken) -> int | None:
        """Return the origin of non-finite values in an output, a new one if they start here."""
        handed_on = next((given for given in self._given if given.broken == makes), None)
        if handed_on is None and makes == "infinity":  # NaN may disappear in a comparison
            handed_on = next((given for given in self._given if given.broken), None)
        if handed_on is not None:
            return self._origin_of_operand(operation.name, handed_on)
        infinite = next((given for given in self._given if given.broken), None)
        because_of = None
        if infinite is not None:
            because_of = self._origin_of_operand(operation.name, infinite)
        return self._add(
            operation.name,
            makes,
            source="constant" if _writes_constant(operation) else "operation",
            operands=tuple(given.record or operand_of(given.tensor) for given in self._given),
            broken=values_of(output).nonfinite,
            dtype=dtype_name(output.dtype),
            number=_first_number(operation),
            blocked_rows=self._blocked_rows(operation),
            because_of=because_of,
        )

    def _origin_of_operand(self, name: str, given: _Given) -> int | None:
        storage = storage_of(given.tensor)
        known = self._origin_of.get(storage)
        if known is not None:
            origin = self.origins[known]
            if origin.line is None:  # gradscope copied the batch, and the user's code is next
                origin.line, origin.operation = self._line(), name
            return known
        source = self._source_of(storage)
        added = self._add(
            name,
            given.broken or "infinity",
            source=source.kind if source else "tensor",
            name=source.name if source else None,
            operands=(given.record or operand_of(given.tensor),),
            broken=values_of(given.tensor).nonfinite,
            dtype=dtype_name(given.tensor.dtype),
        )
        if added is not None:
            self._origin_of[storage] = added
        return added

    def _add(self, operation: str, makes: Broken, **found: object) -> int | None:
        if len(self.origins) >= MOST_ORIGINS:
            return None
        index = len(self.origins)
        origin = Origin(index, operation, self._line(), makes, **found)  # type: ignore[arg-type]
        self.origins.append(origin)
        if origin.source in ("operation", "constant"):
            self._made = origin
        return index

    def _line(self) -> Line | None:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename in (__file__, operations.__file__):
            frame = frame.f_back  # type: ignore[assignment]
        return self._caller.line(frame)

    def _blocked_rows(self, operation: Operation) -> int:
        if not operation.name.endswith("softmax") or not self._given:
            return 0
        dim = operation.args[1]
        scores = self._given[0].tensor
        if not isinstance(dim, int) or not scores.dim():
            return 0
        # A softmax of a row that is masked as a whole divides 0 by 0.
        return int((scores == -math.inf).all(dim=dim).sum())


def storage_of(tensor: Tensor) -> int:
    """Return the address of the storage that views share."""
    # The address of the storage object, not of its memory, which is 0 for all empty tensors.
    position: int = tensor.untyped_storage()._cdata
    return position


def broken_of(tensor: Tensor) -> Broken | None:
    """Return the kind of a tensor's non-finite values, NaN first; None if all are finite."""
    if not tensor.numel():
        return None
    # One pass for both, which are NaN if any element is.
    low, high = (float(extreme) for extreme in torch.aminmax(tensor.detach()))
    if math.isnan(low):
        return "NaN"
    return None if math.isfinite(low) and math.isfinite(high) else "infinity"


def operand_of(tensor: Tensor) -> OperandRecord:
    """Return the record of an operand."""
    values = values_of(tensor)
    return OperandRecord(
        shape=shape_of(tensor),
        minimum=values.minimum,
        maximum=values.maximum,
        zeros=values.zeros,
        nonfinite=values.nonfinite,
    )


def _numbers(operation: Operation) -> Iterator[float]:
    for value in (*operation.args, *operation.kwargs.values()):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)


def _first_number(operation: Operation) -> float | None:
    return next(_numbers(operation), None)


def _writes_constant(operation: Operation) -> bool:
    """Return whether an operation was asked to write a non-finite constant."""
    given = (*operation.args, *operation.kwargs.values())
    return not any(True for _ in tensors(given)) or any(
        not math.isfinite(number) for number in _numbers(operation)
    )


def probe_nonfinite(context: ProbeContext) -> str | None:
    """Record the operations that made NaN or infinity, if the loss or a gradient is non-finite."""
    if _all_finite(context):
        return None
    sources = _sources(context)
    mode = OriginTracker(by_storage(sources).get)
    positions = run_again(context, mode)
    # The forward cannot run again, but NaN in weights or data needs no forward to be seen.
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
        *((buffer, "buffer", name) for name, buffer in members.named_buffers(model)),
        *((parameter, "parameter", name) for name, parameter in members.named_parameters(model)),
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
