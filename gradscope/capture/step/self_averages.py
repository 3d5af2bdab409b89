"""Detects averages of a tensor with itself, and the factors of averages with parameters."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line
from gradscope.capture.step.writes import has_versions
from gradscope.capture.tensor_references import TensorNotes

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


class Average(NamedTuple):
    """A line that moves tensors towards, or away from, parameters."""

    line: Line
    tensors: int
    own: float
    """Number that the write multiplies the content with; `1 - own` is that of the parameters."""


class _Sum(NamedTuple):
    """What a tensor is: a sum of so many times the content of some memories."""

    factors: Mapping[Memory, float]
    reads: int
    """Number of times that memory was read for it."""

    def times(self, factor: float) -> "_Sum":
        """Return a multiple."""
        return self._replace(factors={key: one * factor for key, one in self.factors.items()})

    def plus(self, other: "_Sum", factor: float) -> "_Sum":
        """Return the sum with a multiple of another."""
        factors = dict(self.factors)
        for key, one in other.factors.items():
            factors[key] = factors.get(key, 0.0) + one * factor
        return _Sum(factors, self.reads + other.reads)


class SelfAverageObserver(Observer):
    """Follows sums of multiples of at most two memories that are computed outside of the graph.

    A moving average multiplies a tensor by `d` and adds `1 - d` times another. If both are the same
    memory, nothing is averaged. Weight decay by hand has no such pair of weights.
    """

    names = frozenset({*_SIGNS, *_SCALES, *_LISTS, "__set__", "copy_", "lerp", "lerp_"})

    def __init__(self) -> None:
        self._sums = TensorNotes[_Sum]()
        """By `id` of a tensor."""
        self._scaled: dict[Memory, float] = {}
        """Number that the last write multiplied some memory with."""
        self._found: dict[Line, dict[Memory, float]] = {}
        """By line: the factor by memory."""
        self._others: set[Line] = set()
        """Lines that also average other tensors."""
        self._averages: dict[Line, dict[tuple[Memory, Memory], float]] = {}
        """By line, and by the memory that is written and the other: the factor of the first."""
        self._computed_averages: dict[Line, dict[tuple[Memory, Memory], float]] = {}
        """The same of sums that are computed, whether or not they are written somewhere."""
        self._assigned: dict[Line, dict[Memory, Mapping[Memory, float]]] = {}
        """By line, and by the memory of a tensor whose `.data` is assigned: the factors of the
        sum. One of them is that of the memory that the tensor had before."""
        self._calls = 0

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call computes something outside of the graph."""
        given = args[0] if args else None
        if name in _LISTS:
            given = given[0] if isinstance(given, list | tuple) and given else None
        if not isinstance(given, Tensor) or self._calls == _MOST:
            return False
        if name == "__set__":  # of `.data`: what is assigned is known, and its memory is taken over
            value = args[1]
            known = isinstance(value, Tensor) and id(value) in self._sums
            return known and _memory_of(value) == _memory_of(given)
        return not (torch.is_grad_enabled() and given.requires_grad) and given.dim() > 0

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        self._calls += 1
        given = kwargs or {}
        if name in _LISTS:
            for one, other in _pairs(args, given):
                self._write(name.removeprefix("_foreach_"), one, (other, *args[2:]), given, line)
        elif name == "__set__":
            self._assign(args[1], line)
        elif name.endswith("_") and args and isinstance(args[0], Tensor):
            self._write(_PLAIN.get(name, name), args[0], args[1:], given, line)
        elif isinstance(result, Tensor):
            made = self._computed(name, args, given)
            if made is not None:
                self._sums.keep(result, made)
                self._note_computed(line, made)

    def of(self, parameters: Iterable[Tensor]) -> Iterator[SelfAverage]:
        """Yield the lines that average nothing but parameters with themselves."""
        held = {memory for one in parameters if (memory := _memory_of(one)) is not None}
        for line, factors in self._found.items():
            own = frozenset(factors) & held
            if own and line not in self._others:
                yield SelfAverage(line, own, min(factors[one] for one in own))

    def averages(self, parameters: Iterable[Tensor]) -> Iterator[Average]:
        """Yield the lines that average other tensors with parameters, by one pair of factors."""
        trained = list(parameters)
        yield from _averages(self._averages, trained)
        yield from self._assigned_averages(trained)

    def of_trained(self, parameters: Iterable[Tensor]) -> Iterator[Average]:
        """Yield the lines that average parameters with other ones, by one pair of factors."""
        trained = list(parameters)
        yield from _averages(self._averages, trained, of_trained=True)
        yield from self._assigned_averages(trained, of_trained=True)

    def computed(self, parameters: Iterable[Tensor]) -> Iterator[Average]:
        """Yield the lines that compute such averages, which may write them nowhere."""
        return _averages(self._computed_averages, parameters)

    def close(self) -> None:
        """Forget everything."""
        self._sums.clear()
        for one in (self._scaled, self._found, self._others):
            one.clear()
        self._averages.clear()
        self._computed_averages.clear()
        self._assigned.clear()

    def _assign(self, value: object, line: Line | None) -> None:
        """Note an average that replaces the memory of a tensor."""
        made = self._sum(value)
        memory = _memory_of(value)
        if line is None or made is None or memory is None or len(made.factors) != 2:
            return
        if math.isclose(sum(made.factors.values()), 1, rel_tol=_ROUNDING):
            self._assigned.setdefault(line, {})[memory] = made.factors

    def _assigned_averages(
        self, parameters: Iterable[Tensor], *, of_trained: bool = False
    ) -> Iterator[Average]:
        """Yield the averages that are assigned to `.data`, as `_averages` does.

        The former memory of a tensor may be in use again, but not by what the line leaves alone.
        """
        for line, assigned in self._assigned.items():
            held = {memory for one in parameters if (memory := _memory_of(one)) is not None}
            others = held - set(assigned)
            averages: dict[tuple[Memory, Memory], float] = {}
            for memory, factors in assigned.items():
                match [(one, factor) for one, factor in factors.items() if one in others]:
                    case [(other, factor)]:
                        averages[memory, other] = sum(factors.values()) - factor
            yield from _averages({line: averages}, parameters, of_trained=of_trained)

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
        # An average in place is two calls: `mul_` by the decay, and then `add_` of the rest.
        scale = self._scaled.pop(memory, 1.0)
        other = rest[0] if rest else given.get("other", given.get("end", given.get("src")))
        if name == "mul_":
            if (factor := _number(other)) is not None:
                self._scaled[memory] = factor * scale
            return
        if line is None or not isinstance(other, Tensor):
            return
        source = self._sum(other)
        if source is None or source.factors.keys() != {memory}:
            # A plain `add_` of something else is no average.
            if name in ("lerp_", "copy_") or scale != 1.0:
                self._others.add(line)
            weight = _number(given.get("weight", rest[1] if len(rest) > 1 else None))
            self._note_average(
                line, memory, _written(name, memory, source, _alpha(given), scale, weight)
            )
            return
        factor = self._factor(name, source, source.factors[memory], _alpha(given), scale)
        if factor is not None:
            self._found.setdefault(line, {})[memory] = factor

    def _note_average(self, line: Line, memory: Memory, written: _Sum | None) -> None:
        """Note a sum of two memories, one of which it is written to, whose factors add up to 1."""
        if written is None or len(written.factors) != 2 or memory not in written.factors:
            return
        (other,) = written.factors.keys() - {memory}
        if math.isclose(sum(written.factors.values()), 1, rel_tol=_ROUNDING):
            self._averages.setdefault(line, {})[memory, other] = written.factors[memory]

    def _note_computed(self, line: Line | None, made: _Sum) -> None:
        """Note a sum of two memories whose factors add up to 1."""
        if line is None or len(made.factors) != 2:
            return
        (one, factor), (other, rest) = made.factors.items()
        if math.isclose(factor + rest, 1, rel_tol=_ROUNDING):
            known = self._computed_averages.setdefault(line, {})
            known[one, other], known[other, one] = factor, rest

    @staticmethod
    def _factor(
        name: str, source: _Sum, multiple: float, alpha: float, scale: float
    ) -> float | None:
        """Return by what an average with itself multiplies a tensor; None if it is none."""
        if name == "lerp_":
            return 1.0
        is_sum = source.reads > 1
        if name == "copy_":
            return 1.0 if is_sum and math.isclose(multiple, 1, rel_tol=_ROUNDING) else None
        added = _SIGNS[name] * alpha * multiple
        if scale != 1.0 and added > 0 and math.isclose(scale + added, 1, rel_tol=_ROUNDING):
            return scale * (1 + added)
        return 1.0 if is_sum and abs(added) < _ROUNDING else None

    def _computed(self, name: str, args: Args, given: Mapping[str, object]) -> _Sum | None:
        """Return what a call without a write has computed, if it is a sum of two memories."""
        if len(args) < 2:
            return None
        left, right = args[:2]
        if name in _SCALES:
            number, tensor = (left, right) if isinstance(right, Tensor) else (right, left)
            factor, scaled = _number(number), self._sum(tensor)
            return None if factor is None or scaled is None else scaled.times(factor)
        one, other = self._sum(left), self._sum(right)
        if one is None or other is None:
            return None
        if name == "lerp":
            weight = _number(given.get("weight", args[2] if len(args) > 2 else None))
            if one.factors == other.factors:
                return one._replace(reads=one.reads + other.reads)
            return None if weight is None else one.times(1 - weight).plus(other, weight)
        made = one.plus(other, _SIGNS[name] * _alpha(given))
        return made if len(made.factors) <= 2 else None

    def _sum(self, tensor: object) -> _Sum | None:
        if not isinstance(tensor, Tensor):
            return None
        if (known := self._sums.of(tensor)) is not None:
            return known
        memory = _memory_of(tensor)
        return None if memory is None else _Sum({memory: 1.0}, 1)


def _averages(
    lines: Mapping[Line, Mapping[tuple[Memory, Memory], float]],
    parameters: Iterable[Tensor],
    *,
    of_trained: bool = False,
) -> Iterator[Average]:
    """Yield the lines whose averages of other memory with parameters have one pair of factors.

    Args:
        lines: The factors of the averages.
        parameters: The parameters.
        of_trained: Yield the averages of parameters instead of those of other memory.
    """
    held = {memory for one in parameters if (memory := _memory_of(one)) is not None}
    for line, factors in lines.items():
        own = [
            factor
            for (kept, other), factor in factors.items()
            if other in held and (kept in held) == of_trained
        ]
        if own and math.isclose(min(own), max(own), rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            yield Average(line, len(own), own[0])


def _written(
    name: str,
    memory: Memory,
    source: _Sum | None,
    alpha: float,
    scale: float,
    weight: float | None,
) -> _Sum | None:
    """Return what a write leaves in a tensor whose content was multiplied by `scale` before."""
    if source is None:
        return None
    own = _Sum({memory: scale}, 1)
    if name == "copy_":
        return source
    if name == "lerp_":
        return None if weight is None else own.times(1 - weight).plus(source, weight)
    return own.plus(source, _SIGNS[name] * alpha)


_PLAIN = {"__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_"}


def _pairs(args: Args, given: Mapping[str, object]) -> Iterator[tuple[Tensor, object]]:
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
    # NaN makes every comparison of a factor fail: a tensor as `alpha` is not known.
    return math.nan if number is None else number


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _memory_of(tensor: object) -> Memory | None:
    if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
        return None
    assert isinstance(tensor, Tensor)
    if tensor.is_nested or not has_versions(tensor) or not tensor.numel():
        return None
    # `.data` and `detach()` are other objects in the same memory.
    return (tensor.data_ptr(), tensor.numel()) if tensor.is_contiguous() else None
