"""Looks for examples that the model gives the same output although their inputs differ."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.overrides import TorchFunctionMode

from gradscope.capture.observed_calls import Args, Function, Kwargs
from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import Caller, Line
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.snapshot import preserved
from gradscope.recording.evidence.batches import EqualOutputsRecord
from gradscope.target.structures import named_tensors

_LEAST_ROWS = 4
"""Number of examples: the outputs of fewer may be equal by chance."""

_MOST_ELEMENTS = 20_000_000
"""Number of elements of all inputs or outputs that are compared."""

_CHOOSING = frozenset(
    {"gather", "getitem", "index_select", "narrow", "select", "take", "take_along_dim"}
)
"""Operations that choose among numbers."""

_MASKING = frozenset({"masked_fill", "mul", "where"})
"""Operations that leave out numbers by a mask. Others, such as activations, dropout and layers,
make examples equal by what their parameters are, or by chance.
"""

_STEPS = frozenset(
    {"argmin", "bucketize", "ceil", "fix", "floor", "floor_divide", "heaviside", "round"}
    | {"searchsorted", "sgn", "sign", "trunc"}
)
"""Operations with few different results, as of a quantiser: it may give examples one code."""

_COMPARISONS = frozenset({"ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt"})
"""Comparisons: those of computed numbers have two results."""


def probe_equal_outputs(context: ProbeContext) -> str | None:
    """Record the largest group of different examples with one output, and what made it."""
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    seen = _Ends()
    try:
        seen.run(context)
        rows, group = seen.group()
        if rows < _LEAST_ROWS:
            return "the model does not return a number for each of four examples"
        if not group:
            return None
        # A second forward, because only the end of the first one shows which examples are equal.
        merging = _Merging(rows, group)
        seen.run(context, merging)
    except GradscopeError:
        return "the forward raised an exception when it was repeated"
    if merging.leaves_out and not merging.is_quantised:
        context.assembler.note(
            EqualOutputsRecord(
                operation=merging.operation,
                site=context.assembler.site_of(merging.line),
                rows=rows,
                equal=len(group),
            )
        )
    return None


class _Ends:
    """Holds what the model was given in its first call, and what it returned."""

    def __init__(self) -> None:
        self._given: list[Tensor] = []
        self._returned: list[Tensor] = []

    def run(self, context: ProbeContext, mode: "_Merging | None" = None) -> None:
        """Run the forward as at first, under a mode within the model's call if there is one."""
        target = context.target
        hooks = [
            target.model.register_forward_pre_hook(self._enter, with_kwargs=True),
            target.model.register_forward_hook(self._leave),
        ]
        self._given, self._returned = [], []
        forward = target.forward.at(target.batch, target.seed)
        try:
            with (
                preserved(target.model, None, target.batch, target.batch, target.forward),
                context.watched_as_at_first(),
            ):
                if mode is None:
                    forward()
                else:
                    with mode:
                        forward()
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: nn.Module, args: object, kwargs: object) -> None:
        if not self._given:
            self._given = list(_tensors((args, kwargs)))

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        if not self._returned:
            self._returned = [one for one in _tensors(output) if one.is_floating_point()]

    def group(self) -> tuple[int, tuple[int, ...]]:
        """Return the number of examples, and those with one output and different inputs.

        They are empty unless they are most of the examples, and each other example has an output
        of its own: outputs with few different values may be meant. Of examples with equal inputs
        only the first counts.
        """
        rows = self._returned[0].shape[0] if self._returned and self._returned[0].ndim else 0
        given, returned = _of_rows(self._given, rows), _of_rows(self._returned, rows)
        if rows < _LEAST_ROWS or not given or not returned:
            return 0, ()
        inputs, outputs = _kinds(given), _kinds(returned)
        # Reversed, because the last row of a kind wins: it is then the first.
        firsts = {kind: row for row, kind in reversed([*enumerate(inputs)])}
        (most, _), *others = Counter(outputs[row] for row in firsts.values()).most_common()
        group = tuple(row for row in sorted(firsts.values()) if outputs[row] == most)
        is_most = len(group) >= _LEAST_ROWS - 1 and 2 * len(group) > rows
        return rows, group if is_most and all(count == 1 for _, count in others) else ()


class _Merging(TorchFunctionMode):
    """Finds the operation from which on some examples have the same numbers.

    Args:
        rows: Number of examples.
        group: Positions of the examples.
    """

    def __init__(self, rows: int, group: Sequence[int]) -> None:
        super().__init__()
        self._rows, self._group = rows, list(group)
        self._caller = Caller()
        self._is_merged = False
        self.operation = ""
        self.line: Line | None = None
        self.leaves_out = False
        """Whether it chooses among numbers, or multiplies by a mask."""
        self.is_quantised = False
        """Whether computed numbers were made discrete before it."""

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs = None
    ) -> object:
        """Call the function, and compare the examples' parts of its result."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        with DisableTorchFunction(), torch.no_grad():
            if not self._is_merged:
                self.is_quantised |= _is_quantising(getattr(func, "__name__", ""), args)
            first = result[0] if isinstance(result, tuple | list) and result else result
            if isinstance(first, Tensor) and is_plain(first) and self._is_judged(first):
                part = first[self._group].reshape(len(self._group), -1)
                is_merged = bool((part == part[:1]).all())
                if is_merged and not self._is_merged:
                    self.operation = getattr(func, "__name__", "")
                    self.line = self._caller.line(sys._getframe(1))
                    name, operands = self.operation.strip("_"), tuple(_tensors((args, kwargs)))
                    self.leaves_out = name in _CHOOSING or (
                        name in _MASKING and not all(one.requires_grad for one in operands)
                    )
                # Examples may be equal for a while, as at padding, and differ again.
                self._is_merged = is_merged
        return result

    def _is_judged(self, tensor: Tensor) -> bool:
        is_of_rows = tensor.ndim > 0 and tensor.shape[0] == self._rows
        return is_of_rows and tensor.is_floating_point() and tensor.numel() > 0


def _is_quantising(name: str, args: Args) -> bool:
    """Return whether a call makes numbers discrete that depend on parameters."""
    name = name.strip("_")
    return (name in _STEPS or name in _COMPARISONS) and any(
        isinstance(one, Tensor) and one.requires_grad for one in args
    )


def _tensors(value: object) -> Iterator[Tensor]:
    for _, tensor in named_tensors(value, ""):
        if is_plain(tensor):
            yield tensor


def _of_rows(tensors: Iterable[Tensor], rows: int) -> list[Tensor]:
    """Return the tensors with a part for every example; none if they are too large."""
    found = [one for one in tensors if one.ndim and one.shape[0] == rows and one.numel()]
    return found if sum(one.numel() for one in found) <= _MOST_ELEMENTS else []


def _kinds(tensors: Iterable[Tensor]) -> list[tuple[int, ...]]:
    """Return for every example a key that examples with equal numbers share."""
    with DisableTorchFunction(), torch.no_grad():
        each = [_numbered(tensor.detach()).tolist() for tensor in tensors]
    return list(zip(*each, strict=True))


def _numbered(tensor: Tensor) -> Tensor:
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
    # Numbered within a tensor, so that rows of several tensors are compared as short keys.
    numbers: Tensor = torch.unique(flat.reshape(len(flat), -1), dim=0, return_inverse=True)[1]
    return numbers
