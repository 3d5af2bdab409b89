"""The calls of the forward that switch gradients off, or run backward themselves."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.cuts import CutTracker
from gradscope.capture.edges import tensors
from gradscope.capture.lines import Line, created


class SwitchWitness:
    """Notes where gradients are switched off: `with torch.no_grad():` and the like."""

    names = frozenset({"_set_grad_enabled"})

    def __init__(self, cuts: CutTracker) -> None:
        self._cuts = cuts
        self._lines: list[tuple[int, Line | None]] = []
        """With the number of cuts that were known by then."""

    def wants(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
    ) -> bool:
        """Return whether the call switches off."""
        return bool(args) and args[0] is False

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Note the line."""
        self._lines.append((len(self._cuts.cuts), line))

    def before(self, cut: int) -> Line | None:
        """Return the line that had switched gradients off when a cut was first met."""
        lines = [line for known, line in self._lines if known <= cut]
        return lines[-1] if lines else None


class BackwardCall(NamedTuple):
    """A backward of the user's that freed what it went through."""

    name: str
    """`backward` or `grad`."""
    line: Line | None
    freed: frozenset[int]
    """The creation numbers of its nodes."""


class BackwardWitness:
    """Notes the backward calls of the forward's own, and what they have freed."""

    names = frozenset({"backward", "grad"})

    def __init__(self) -> None:
        self.count = 0
        """Of all of them."""
        self.calls: list[BackwardCall] = []
        """Those that did not keep the graph."""

    def wants(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
    ) -> bool:
        """Return true: they are few."""
        return True

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Count a call, and note it unless it keeps the graph."""
        self.count += 1
        kwargs = kwargs or {}
        retain, create = kwargs.get("retain_graph"), kwargs.get("create_graph")
        if create if retain is None else retain:
            return
        with DisableTorchFunction():
            roots = [tensor.grad_fn for tensor in tensors(args[:1]) if isinstance(tensor, Tensor)]
            self.calls.append(BackwardCall(name, line, _numbers(roots)))

    def that_freed(self, number: int) -> BackwardCall | None:
        """Return the first call that went through a node."""
        return next((call for call in self.calls if number in call.freed), None)


def _numbers(roots: list[Node | None]) -> frozenset[int]:
    waiting = [root for root in roots if root is not None]
    seen = set(waiting)
    while waiting:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return frozenset(number for node in seen if (number := created(node)) is not None)
