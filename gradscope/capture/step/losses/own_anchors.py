"""Finds differences of a parameter and a constant that shares its memory, as `p - p.data`."""

from typing import NamedTuple

from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import Line
from gradscope.capture.step.comparisons import REGRESSIONS
from gradscope.capture.step.graph import Edge, edges, without_node

_DIFFERENCES = frozenset({"__sub__", "sub", "subtract"})
_MOST = 1_024


class OwnAnchor(NamedTuple):
    """A comparison of a parameter with its own memory."""

    line: Line | None
    result: Edge


class OwnAnchorObserver(Observer):
    """Compares the memory of parameters with that of constants which a loss compares them with."""

    names = _DIFFERENCES | REGRESSIONS

    def __init__(self) -> None:
        self._found: list[OwnAnchor] = []
        self._others: set[Line] = set()
        """Lines that later compare with another memory, as after the first step of a meta-learner
        which replaces its weights.
        """

    @property
    def found(self) -> list[OwnAnchor]:
        """Comparisons on lines that never compare with another memory."""
        return [one for one in self._found if one.line not in self._others]

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a parameter and its own memory are compared."""
        operands = [*args[:2], *(kwargs or {}).values()][:2]
        if len(operands) < 2 or len(self._found) == _MOST:
            return False
        one, other = operands
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            return False
        with DisableTorchFunction():
            trained, constant = (one, other) if one.requires_grad else (other, one)
            if not trained.requires_grad or constant.requires_grad:
                return False
            return bool(self._found) or _is_own(trained, constant)

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a comparison that has a gradient."""
        one, other = [*args[:2], *(kwargs or {}).values()][:2]
        edge = next(map(without_node, edges(result)), None)
        if edge is None or not isinstance(one, Tensor) or not isinstance(other, Tensor):
            return
        with DisableTorchFunction():
            trained, constant = (one, other) if one.requires_grad else (other, one)
            if _is_own(trained, constant):
                self._found.append(OwnAnchor(line, edge))
            elif line is not None:
                self._others.add(line)

    def close(self) -> None:
        """Release the graph."""
        self._found.clear()
        self._others.clear()


def _is_own(trained: Tensor, constant: Tensor) -> bool:
    """Return whether a parameter, or a view of one, is compared with its own memory."""
    # An activation may be compared with its own copy where a quantiser is switched off.
    base = trained._base if trained._is_view() else trained
    return base is not None and base.is_leaf and _are_same(trained, constant)


def _are_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same elements of the same memory."""
    return (
        one.shape == other.shape
        and one.numel() > 0
        and is_plain(one)
        and is_plain(other)
        and one.stride() == other.stride()
        and one.data_ptr() == other.data_ptr() != 0
    )
