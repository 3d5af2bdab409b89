"""Observes results that hold one number only: quotients that are all 0, and ratios that are all 1.

A division of whole numbers rounds down: `t // steps` is 0 for every `t` below `steps`. The ratio of
new and old probabilities is 1 where both are of the same policy.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.tensor_references import TensorNotes, WeakTensor

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_DIVISIONS = frozenset({"__floordiv__", "div", "divide", "floor_divide"})
_VIEWS = frozenset({"__getitem__", "expand", "flatten", "reshape", "squeeze", "unsqueeze", "view"})
_FLOATING = frozenset(
    {"add", "bfloat16", "double", "float", "half", "mul", "sub", "to", "type", "type_as"}
)
_CLIPS = frozenset({"clamp", "clip"})
_PRODUCT, _DIFFERENCE = "mul", "sub"
_ROUNDING = 1e-6
"""Deviation of a ratio from 1 that counts as rounding."""
_NORMALISING = frozenset({"sub", "div"})
_LEAST_SCALED = 8
_APART = 0.9
"""Share of the numbers before a normalisation that differ from each other. Rewards of few values
are the same on other data."""
_MOST = 4_096
"""Maximum number of calls that are read, and of elements of a factor that are kept."""


class ZeroQuotient(NamedTuple):
    """A division of whole numbers that gave 0 for each of several, and became a float."""

    elements: int
    largest: float
    """Largest dividend."""
    divisor: float
    digest: int
    """Hash of the dividends."""
    is_sorted: bool
    """Whether no dividend is smaller than the one before it, as of positions."""


class UnitRatio(NamedTuple):
    """An exponential of a difference that was 1 everywhere, was clipped, and was multiplied."""

    elements: int
    factors: frozenset[float]


class UnvaryingObserver(Observer):
    """Follows quotients of whole numbers to floats, and exponentials of differences to products."""

    names = frozenset({*_DIVISIONS, *_VIEWS, *_FLOATING, *_CLIPS, "exp"})

    def __init__(self) -> None:
        self.quotients: dict[Line, ZeroQuotient] = {}
        """By line of the division."""
        self.varying: set[Line] = set()
        """Lines with other quotients than 0, or other ratios than 1."""
        self.ratios: dict[Line, UnitRatio] = {}
        """By line of the exponential."""
        self._clipped: set[Line] = set()
        """Lines of ratios that were clipped."""
        self._factors: dict[Line, UnitRatio] = {}
        self._differences: dict[int, WeakTensor[Tensor]] = {}
        """By `id`: differences of a tensor of the graph and another that is not of it."""
        self._pending = TensorNotes[tuple[Line, ZeroQuotient | None]]()
        """Line of a result, and the quotient; None for a ratio."""
        self._raw = TensorNotes[frozenset[float]]()
        """By `id` of numbers without a graph that were normalised: what they were before."""
        self._calls = 0

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call may make such a result, or uses one."""
        given = args[0] if args else None
        if self._calls >= _MOST or not isinstance(given, Tensor):
            return False
        if name == "exp":
            known = self._differences.get(id(given))
            return known is not None and known() is given
        if name == _DIFFERENCE and given.requires_grad and torch.is_grad_enabled():
            return len(args) > 1 and _is_other(args[1], given)
        if self._is_scaled(name, args):
            return True
        if name in _DIVISIONS and not given.is_floating_point() and given.numel() > 1:
            # Without a rounding mode, they divide whole numbers to floats.
            return name not in ("div", "divide") or bool((kwargs or {}).get("rounding_mode"))
        return bool(self._pending) and any(map(self._pending.of, args[:2]))

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        if not isinstance(result, Tensor) or line is None:
            return
        self._calls += 1
        if name == "exp":
            self._see_ratio(result, line)
        elif self._is_scaled(name, args):
            self._see_scaled(args[0], result)
        elif name == _DIFFERENCE and result.requires_grad:
            self._differences[id(result)] = WeakTensor(result)
        elif name in _DIVISIONS:
            self._see_quotient(args, kwargs or {}, result, line)
        else:
            self._see_use(name, args, result)

    def close(self) -> None:
        """Forget everything."""
        self.quotients.clear()
        self.ratios.clear()
        self.varying.clear()
        self._clipped.clear()
        self._factors.clear()
        self._differences.clear()
        self._pending.clear()
        self._raw.clear()

    def _is_scaled(self, name: str, args: Args) -> bool:
        """Return whether a call may normalise numbers, or is a view of such numbers."""
        given = args[0]
        if not isinstance(given, Tensor) or given.requires_grad or not given.is_floating_point():
            return False
        if name in _VIEWS:
            return self._raw.of(given) is not None and self._pending.of(given) is None
        other = args[1] if len(args) > 1 else None
        is_one = isinstance(other, Tensor) and other.numel() == 1 and not other.requires_grad
        return name in _NORMALISING and is_one and _LEAST_SCALED <= given.numel() <= _MOST

    def _see_scaled(self, given: object, result: Tensor) -> None:
        raw = self._raw.of(given)
        if raw is None and isinstance(given, Tensor) and has_numbers(given):
            values = given.detach().reshape(-1).tolist()
            known = frozenset(map(float, values))
            raw = known if len(known) >= _APART * len(values) else frozenset()
        if raw:
            self._raw.keep(result, raw)

    def _see_ratio(self, result: Tensor, line: Line) -> None:
        if result.numel() < 2 or not has_numbers(result):
            return
        low, high = map(float, torch.aminmax(result.detach()))
        if low >= 1 - _ROUNDING and high <= 1 + _ROUNDING:
            self._pending.keep(result, (line, None))
        else:
            self.varying.add(line)

    def _see_quotient(
        self, args: Args, given: Mapping[str, object], result: Tensor, line: Line
    ) -> None:
        dividend = args[0]
        divisor = argument(args, given, 1, "other")
        assert isinstance(dividend, Tensor)
        if not isinstance(divisor, int | float) or not has_numbers(dividend):
            return
        if bool(result.any()):
            self.varying.add(line)
            return
        values = dividend.detach().reshape(-1)[:_MOST].tolist()
        found = ZeroQuotient(
            elements=len(values),
            largest=float(max(values)),
            divisor=float(divisor),
            digest=hash(tuple(values)),
            is_sorted=values == sorted(values),
        )
        if len(set(values)) > 1:
            self._pending.keep(result, (line, found))

    def _see_use(self, name: str, args: Args, result: Tensor) -> None:
        used, (line, quotient) = next(
            (one, known) for one in args[:2] if (known := self._pending.of(one)) is not None
        )
        if quotient is None:
            other = next((one for one in args[:2] if one is not used), None)
            if name == _PRODUCT and _is_constant(other):
                raw = self._raw.of(other)
                if raw is None:
                    values = other.detach().reshape(-1)[:_MOST].tolist()
                    raw = frozenset(map(float, values))
                self._factors[line] = UnitRatio(result.numel(), raw)
            elif name in _CLIPS:
                self._clipped.add(line)
            if line in self._clipped and line in self._factors:
                self.ratios[line] = self._factors[line]
        elif result.is_floating_point():
            self.quotients[line] = quotient
        elif name in _VIEWS:
            self._pending.keep(result, (line, quotient))


def _is_constant(factor: object) -> "TypeIs[Tensor]":
    """Return whether a factor is a tensor that is not part of the graph."""
    return isinstance(factor, Tensor) and not factor.requires_grad and has_numbers(factor)


def _is_other(old: object, new: Tensor) -> bool:
    """Return whether a tensor is computed outside of the graph, and is not `new.detach()`."""
    if not isinstance(old, Tensor) or old.requires_grad or old.shape != new.shape:
        return False
    are_readable = has_numbers(old) and has_numbers(new)
    # On-policy methods write `exp(new - new.detach())` on purpose, for its gradient.
    return are_readable and old.data_ptr() != new.data_ptr()
