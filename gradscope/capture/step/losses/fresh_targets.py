"""Finds losses whose target is a random draw that nothing else uses, beside noise in the input."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line
from gradscope.capture.step.comparisons import REGRESSIONS
from gradscope.capture.step.graph import Edge, edges, tensors, without_node
from gradscope.capture.tensor_references import TensorNotes

_DRAWS = frozenset({"randn", "randn_like"})
_DIFFERENCES = frozenset({"__rsub__", "__sub__", "rsub", "sub"})
_SUMS = frozenset({"__add__", "__radd__", "add", "addcmul", "lerp"})
_OTHERS = frozenset(
    {
        "__getitem__",
        "__mul__",
        "__rmul__",
        "__truediv__",
        "addcdiv",
        "bmm",
        "cat",
        "chunk",
        "clamp",
        "clone",
        "detach",
        "div",
        "einsum",
        "exp",
        "flatten",
        "linear",
        "matmul",
        "mul",
        "mul_",
        "permute",
        "pow",
        "reshape",
        "square",
        "squeeze",
        "stack",
        "sum",
        "to",
        "transpose",
        "unsqueeze",
        "view",
        "where",
    }
)
_MOST = 64


class FreshTarget(NamedTuple):
    """A target that is drawn anew, and the line that added another draw to the input."""

    line: Line
    result: Edge
    noise: Line
    shape: tuple[int, ...]


class _Draw(NamedTuple):
    """A random draw, a multiple of one, or its difference from data."""

    origin: int
    """`id` of the draw."""
    line: Line | None
    is_whole: bool = True
    """Whether it is the draw itself, or its difference from data, and no multiple."""


class FreshTargetObserver(Observer):
    """Follows noise that is drawn like data, to sums with the data and to a loss."""

    names = _DRAWS | REGRESSIONS | _DIFFERENCES | _SUMS | _OTHERS

    def __init__(self) -> None:
        self._draws = TensorNotes[_Draw]()
        self._used = set[int]()
        """Draws, by `id`, that anything but a loss uses."""
        self._targets: dict[int, FreshTarget] = {}
        self._noisy: dict[int, tuple[Line, tuple[int, ...]]] = {}
        """Where a draw was added to data of its shape, by `id` of the draw."""

    @property
    def found(self) -> list[FreshTarget]:
        """Targets that nothing else uses, where another draw of the shape is added to data."""
        fresh = {key: one for key, one in self._targets.items() if key not in self._used}
        return [
            one._replace(noise=line)
            for one in fresh.values()
            for line in [next(self._lines_of_noise(one.shape), None)]
            if line is not None
        ]

    def _lines_of_noise(self, shape: tuple[int, ...]) -> Iterator[Line]:
        return (line for line, other in self._noisy.values() if other == shape)

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call draws in the shape of a tensor, or uses such a draw."""
        if name in _DRAWS:
            return len(self._draws) < _MOST
        if not self._draws:
            return False
        given = args[0] if name in ("cat", "stack") and args else args
        operands = given if isinstance(given, list | tuple) else (given,)
        return any(self._draws.of(one) is not None for one in (*operands, *(kwargs or {}).values()))

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        if not isinstance(result, Tensor) or line is None:
            return
        if name in _DRAWS:
            self._note_draw(name, (*args, *(kwargs or {}).values()), result, line)
            return
        operands = list(tensors((*args, *(kwargs or {}).values())))
        known = [(one, draw) for one in operands if (draw := self._draws.of(one)) is not None]
        if result.requires_grad and name in REGRESSIONS | _DIFFERENCES and len(operands) == 2:
            self._compare(known, result, line)
        elif not (name in _DIFFERENCES and self._is_target_of_flow(operands, known, result)):
            self._note_use(name, known, result, line)

    def _note_draw(self, name: str, given: Args, result: Tensor, line: Line) -> None:
        # Numbers that stand in for data have a shape that is written out.
        is_like = name == "randn_like" or any(isinstance(one, torch.Size) for one in given)
        if is_like and not result.requires_grad and result.ndim > 1:
            self._draws.keep(result, _Draw(id(result), line))

    def _is_target_of_flow(
        self, operands: list[Tensor], known: list[tuple[Tensor, _Draw]], result: Tensor
    ) -> bool:
        """Return whether a difference leads from a draw to data, and keep it."""
        if len(operands) != 2 or len(known) != 1 or result.requires_grad:
            return False
        ((one, draw),) = known
        if id(one) != draw.origin or operands[0].shape != operands[1].shape:
            return False
        self._draws.keep(result, draw)
        return True

    def _note_use(
        self, name: str, known: list[tuple[Tensor, _Draw]], result: Tensor, line: Line
    ) -> None:
        for one, draw in known:
            self._used.add(draw.origin)
            if name in _SUMS and not result.requires_grad and result.shape == one.shape:
                self._noisy.setdefault(draw.origin, (line, tuple(one.shape)))
            elif not result.requires_grad and result.shape == one.shape:
                self._draws.keep(result, draw._replace(is_whole=False))

    def _compare(self, known: list[tuple[Tensor, _Draw]], result: Tensor, line: Line) -> None:
        edge = next(map(without_node, edges(result)), None)
        for one, draw in known:
            if draw.is_whole and edge is not None and draw.line is not None:
                target = FreshTarget(line, edge, draw.line, tuple(one.shape))
                self._targets.setdefault(draw.origin, target)

    def close(self) -> None:
        """Forget everything."""
        self._draws.clear()
        self._used.clear()
        self._targets.clear()
        self._noisy.clear()
