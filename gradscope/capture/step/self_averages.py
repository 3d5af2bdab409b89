"""Detects writes that average a tensor with itself, such as an average that shares its memory."""

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.source.lines import Line
from gradscope.capture.step.writes import has_versions

_ROUNDING = 1e-6
"""Relative deviation of two weights from a sum of 1."""
_MOST = 4_096
"""Maximum number of calls that are followed, as an evaluation may make many more."""

_SIGNS = {"add": 1, "add_": 1, "__iadd__": 1, "sub": -1, "sub_": -1, "__isub__": -1}
_SCALES = frozenset({"mul", "mul_", "__imul__"})
_LISTS = frozenset({"_foreach_add_", "_foreach_lerp_", "_foreach_mul_", "_foreach_sub_"})

Memory = tuple[int, int]
"""Address and number of elements."""


class SelfAverage(NamedTuple):
    """A line that averages tensors with themselves."""

    line: Line
    memory: frozenset[Memory]
    factor: float
    """Number that the write multiplies the tensors with: 1 if it changes nothing."""


class _Multiple(NamedTuple):
    """What a tensor is: so many times the content of some memory."""

    memory: Memory
    factor: float
    reads: int
    """Number of times that the memory was read for it."""


class SelfAverageObserver:
    """Follows sums of multiples of the same memory that are computed outside of the graph.

    A moving average multiplies a tensor by `d` and adds `1 - d` times another. If both are the same
    memory, nothing is averaged. Weight decay by hand has no such pair of weights.
    """

    names = frozenset({*_SIGNS, *_SCALES, *_LISTS, "copy_", "lerp", "lerp_"})

    def __init__(self) -> None:
        self._multiples: dict[int, tuple[weakref.ref[Tensor], _Multiple]] = {}
        """By `id` of a tensor."""
        self._scaled: dict[Memory, float] = {}
        """Number that the last write multiplied some memory with."""
        self._found: dict[Line, dict[Memory, float]] = {}
        """By line: the factor by memory."""
        self._others: set[Line] = set()
        """Lines that also average other tensors."""
        self._calls = 0

    def wants(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> bool:
        """Return whether a call computes something outside of the graph."""
        given = args[0] if args else None
        if name in _LISTS:
            given = given[0] if isinstance(given, list | tuple) and given else None
        if not isinstance(given, Tensor) or self._calls == _MOST:
            return False
        return not (torch.is_grad_enabled() and given.requires_grad) and given.dim() > 0

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Follow a call that has returned."""
        self._calls += 1
        given = kwargs or {}
        if name in _LISTS:
            for one, other in _pairs(args, given):
                self._write(name.removeprefix("_foreach_"), one, (other, *args[2:]), given, line)
        elif name.endswith("_") and args and isinstance(args[0], Tensor):
            self._write(_PLAIN.get(name, name), args[0], args[1:], given, line)
        elif isinstance(result, Tensor):
            made = self._computed(name, args, given)
            if made is not None:
                self._multiples[id(result)] = weakref.ref(result), made

    def of(self, parameters: Iterable[Tensor]) -> Iterator[SelfAverage]:
        """Yield the lines that average nothing but parameters with themselves."""
        held = {memory for one in parameters if (memory := _memory_of(one)) is not None}
        for line, factors in self._found.items():
            own = frozenset(factors) & held
            if own and line not in self._others:
                yield SelfAverage(line, own, min(factors[one] for one in own))

    def close(self) -> None:
        """Forget everything."""
        for one in (self._multiples, self._scaled, self._found, self._others):
            one.clear()

    def _write(
        self,
        name: str,
        target: Tensor,
        rest: tuple[object, ...],
        given: Mapping[str, object],
        line: Line | None,
    ) -> None:
        memory = _memory_of(target)
        if memory is None:
            return
        scale = self._scaled.pop(memory, 1.0)
        other = rest[0] if rest else given.get("other", given.get("end", given.get("src")))
        if name == "mul_":
            if (factor := _number(other)) is not None:
                self._scaled[memory] = factor * scale
            return
        if line is None or not isinstance(other, Tensor):
            return
        source = self._multiple(other)
        if source is None or source.memory != memory:
            if name in ("lerp_", "copy_") or scale != 1.0:
                self._others.add(line)
            return
        factor = self._factor(name, source, _alpha(given), scale)
        if factor is not None:
            self._found.setdefault(line, {})[memory] = factor

    @staticmethod
    def _factor(name: str, source: _Multiple, alpha: float, scale: float) -> float | None:
        """Return by what an average with itself multiplies a tensor; None if it is none."""
        if name == "lerp_":
            return 1.0
        is_sum = source.reads > 1
        if name == "copy_":
            return 1.0 if is_sum and math.isclose(source.factor, 1, rel_tol=_ROUNDING) else None
        added = _SIGNS[name] * alpha * source.factor
        if scale != 1.0 and added > 0 and math.isclose(scale + added, 1, rel_tol=_ROUNDING):
            return scale * (1 + added)
        return 1.0 if is_sum and abs(added) < _ROUNDING else None

    def _computed(
        self, name: str, args: tuple[object, ...], given: Mapping[str, object]
    ) -> _Multiple | None:
        """Return what a call without a write has computed, if it is a multiple of one memory."""
        if len(args) < 2:
            return None
        left, right = args[:2]
        if name in _SCALES:
            number, tensor = (left, right) if isinstance(right, Tensor) else (right, left)
            factor, scaled = _number(number), self._multiple(tensor)
            if factor is None or scaled is None:
                return None
            return scaled._replace(factor=scaled.factor * factor)
        one, other = self._multiple(left), self._multiple(right)
        if one is None or other is None or one.memory != other.memory:
            return None
        reads = one.reads + other.reads
        if name == "lerp":
            is_same = one.factor == other.factor
            return _Multiple(one.memory, one.factor, reads) if is_same else None
        factor = one.factor + _SIGNS[name] * _alpha(given) * other.factor
        return _Multiple(one.memory, factor, reads)

    def _multiple(self, tensor: object) -> _Multiple | None:
        if not isinstance(tensor, Tensor):
            return None
        known = self._multiples.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        memory = _memory_of(tensor)
        return None if memory is None else _Multiple(memory, 1.0, 1)


_PLAIN = {"__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_"}


def _pairs(
    args: tuple[object, ...], given: Mapping[str, object]
) -> Iterator[tuple[Tensor, object]]:
    """Yield the tensors of a call for lists, each with its other operand."""
    targets = args[0] if args else ()
    other = args[1] if len(args) > 1 else next(iter(given.values()), None)
    if not isinstance(targets, list | tuple):
        return
    others = other if isinstance(other, list | tuple) else [other] * len(targets)
    for one, two in zip(targets, others, strict=False):
        if isinstance(one, Tensor):
            yield one, two


def _alpha(given: Mapping[str, object]) -> float:
    number = _number(given.get("alpha", 1))
    return math.nan if number is None else number


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _memory_of(tensor: Tensor) -> Memory | None:
    if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
        return None
    if tensor.is_nested or not has_versions(tensor) or not tensor.numel():
        return None
    return (tensor.data_ptr(), tensor.numel()) if tensor.is_contiguous() else None
