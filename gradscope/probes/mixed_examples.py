"""Changes one example, and finds the first operation that lets another one depend on it."""

import sys
from collections.abc import Iterable
from itertools import accumulate
from operator import mul
from types import FrameType

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from gradscope.capture.observed_calls import Args, Function, Kwargs
from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import Caller, Line
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.micro_batches.batch_division import Division, divide
from gradscope.probes.snapshot import preserved
from gradscope.recording.evidence.batches import MixedExamplesRecord
from gradscope.target import members
from gradscope.target.structures import map_items

_RESHAPING = frozenset({"reshape", "view"})

_LEAST_ROWS = 3
"""Number of examples: of two, what is done to one tells little of the other."""

_MOST_ELEMENTS = 20_000_000
"""Number of elements of all results together that are kept to be compared."""

_TOLERANCE = 1e-4
"""Relative difference of an element below which it counts as unchanged. Rows of one matrix product
are computed alike; other kernels may not."""


def probe_mixed_examples(context: ProbeContext) -> str | None:
    """Run the model with one example changed, and record the first operation that mixes them."""
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    try:
        division = divide(context.target.batch, _LEAST_ROWS)
    except GradscopeError:
        return "the batch has no dimension with three examples"
    if division.repeated:
        return "some of the batch's tensors have no dimension of examples"
    watch = _Results(division.rows)
    try:
        _run(context, context.target.batch, watch)
        watch.is_second = True
        _run(context, _changed(context.target.batch, division), watch)
    except GradscopeError:
        return "the forward raised an exception with one example changed"
    if watch.skip_reason is None and watch.found is not None:
        operation, line, shape = watch.found
        context.assembler.note(
            MixedExamplesRecord(
                operation=operation,
                site=context.assembler.site_of(line),
                rows=division.rows,
                dims=shape,
                in_model=watch.found_in_model,
                is_per_example=watch.is_per_example,
                is_ambiguous=_is_ambiguous(context.target.batch, division.rows),
            )
        )
    return watch.skip_reason


def _run(context: ProbeContext, batch: object, watch: "_Results") -> None:
    """Run a forward under the mode, with batch statistics off."""
    target = context.target
    forward = target.forward.at(batch, target.seed)
    with (
        preserved(target.model, None, batch, target.batch, target.forward),
        context.watched_as_at_first(),
    ):
        for module in members.modules(target.model):
            # In eval mode these use running statistics, which do not mix examples.
            if isinstance(module, _BatchNorm | nn.InstanceNorm1d):
                module.eval()
        watch.begin(target.model)
        try:
            with watch:
                forward()
        finally:
            watch.end()


def _changed(batch: object, division: Division) -> object:
    """Return the batch with the numbers of the second example in place of the middle one's."""
    rows, middle = division.rows, division.rows // 2

    def change(value: object) -> object:
        if not isinstance(value, Tensor):
            return map_items(value, change)
        if not value.ndim or value.shape[0] != rows:
            return value
        changed = value.detach().clone()
        # The middle one, because operations that mix neighbours reach it from both sides.
        other = 0 if not torch.equal(changed[0], changed[middle]) else rows - 1
        # Numbers of another example, because invented ones may be no valid input.
        changed[middle] = changed[other]
        return changed.requires_grad_(value.requires_grad)

    return change(batch)


def _is_ambiguous(batch: object, rows: int) -> bool:
    """Return whether the tensors share another dimension, which may be the one of examples."""
    shapes: list[torch.Size] = []

    def collect(value: object) -> object:
        if isinstance(value, Tensor) and value.ndim:
            shapes.append(value.shape)
        return value if isinstance(value, Tensor) else map_items(value, collect)

    collect(batch)
    seconds = {shape[1] for shape in shapes if len(shape) > 1}
    return len(shapes) < 2 or (all(len(s) > 1 for s in shapes) and len(seconds) == 1)


class _Results(TorchFunctionMode):
    """Keeps the results of a first forward, and compares those of a second with them.

    Args:
        rows: Number of examples.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows, self._middle = rows, rows // 2
        self._kept: list[tuple[str, Tensor | None]] = []
        self._position = self._elements = 0
        self._caller = Caller()
        self._is_in_model = False
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self.is_second = False
        self.found: tuple[str, Line | None, tuple[int, ...]] | None = None
        """Name, line and result's shape of the operation that mixes examples first."""
        self.found_in_model = False
        self.is_per_example = False
        """Whether the model returns something for each example."""
        self.skip_reason: str | None = None

    def begin(self, model: nn.Module) -> None:
        """Prepare for a forward of the model."""
        self._position = 0
        self._hooks = [
            model.register_forward_pre_hook(self._enter),
            model.register_forward_hook(self._leave),
        ]

    def end(self) -> None:
        """Remove the hooks, and after the second forward all results."""
        while self._hooks:
            self._hooks.pop().remove()
        if self.is_second:
            self._kept.clear()

    def _enter(self, module: nn.Module, args: object) -> None:
        self._is_in_model = True

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        self._is_in_model = False
        first = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(first, Tensor) and first.ndim:
            self.is_per_example = self._rows in first.shape[:2]

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs = None
    ) -> object:
        """Call the function, and keep or compare its result."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        if self.skip_reason is None and self.found is None:
            with DisableTorchFunction(), torch.no_grad():
                name = getattr(func, "__name__", "")
                self._see(name, result, sys._getframe(1))
                if self.is_second and name in _RESHAPING and self._swaps(args[0], result):
                    self._find(name, result, sys._getframe(1))
        return result

    def _see(self, name: str, result: object, frame: FrameType) -> None:
        first = result[0] if isinstance(result, tuple | list) and result else result
        tensor = first if isinstance(first, Tensor) and is_plain(first) else None
        if not self.is_second:
            self._keep(name, tensor)
            return
        # Results are paired by their order, which a data-dependent branch breaks.
        if self._position >= len(self._kept) or self._kept[self._position][0] != name:
            self.skip_reason = "the forward takes another way with one example changed"
            return
        before = self._kept[self._position][1]
        self._position += 1
        if before is None or tensor is None or before.shape != tensor.shape:
            return
        if not self._is_confined(before, tensor):
            self._find(name, tensor, frame)

    def _find(self, name: str, result: object, frame: FrameType) -> None:
        if self.found is None and isinstance(result, Tensor):
            self.found = name, self._caller.line(frame), tuple(result.shape)
            self.found_in_model = self._is_in_model

    def _swaps(self, given: object, result: object) -> bool:
        """Return whether the first two dimensions change places, and the numbers do not.

        A dimension of size 1 may change places: the numbers keep their order.
        """
        if not (isinstance(given, Tensor) and isinstance(result, Tensor)) or given.ndim < 3:
            return False
        first, second, *rest = given.shape
        is_swapped = tuple(result.shape) == (second, first, *rest) and first != second
        return is_swapped and min(first, second) > 1 and self._rows in (first, second)

    def _keep(self, name: str, tensor: Tensor | None) -> None:
        self._elements += 0 if tensor is None else tensor.numel()
        if self._elements > _MOST_ELEMENTS:
            self.skip_reason = "the results of the forward are too large to keep"
            self._kept.clear()
            return
        self._kept.append((name, None if tensor is None else tensor.detach().clone()))

    def _is_confined(self, before: Tensor, now: Tensor) -> bool:
        """Return whether only the changed example's part of a tensor has changed."""
        if before.is_floating_point():
            # Kernels may sum rows in another order when one row differs, so rounding is tolerated.
            scale = before.abs().nan_to_num(0, 0, 0).max() if before.numel() else 0.0
            changed = (before - now).abs() > _TOLERANCE * scale
        else:
            changed = before != now
        if not bool(changed.any()):
            return True
        if not changed.ndim:
            return False
        flat = changed.flatten().nonzero().flatten()
        each, left = divmod(changed.numel(), self._rows)
        first = changed.shape[0]
        # The examples may lie along the first dimensions, or in groups along the first.
        is_first = self._rows in accumulate(changed.shape, mul) or not self._rows % first
        if not left and is_first and self._is_block(flat, each):
            return True
        return any(
            self._is_part(changed, dimension)
            for dimension, size in enumerate(changed.shape)
            if size % self._rows == 0
        )

    def _is_block(self, indices: Tensor, each: int) -> bool:
        start = self._middle * each
        return bool((indices >= start).all()) and bool((indices < start + each).all())

    def _is_part(self, changed: Tensor, dimension: int) -> bool:
        size = changed.shape[dimension]
        indices = changed.movedim(dimension, 0).reshape(size, -1).any(1).nonzero().flatten()
        if self._is_block(indices, size // self._rows):
            return True
        # Repeated batches, as for beams, may have the examples innermost.
        return bool((indices % self._rows == self._middle).all())
