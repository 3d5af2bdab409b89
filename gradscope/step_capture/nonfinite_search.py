"""Finds where a forward that was not observed became non-finite, from its graph.

It visits the values that the graph still holds in the order of the forward. The origin is an
operation with finite inputs and a non-finite result.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from gradscope.capture.naming import dtype_name
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.known_values import KnownValues, saved_value
from gradscope.capture.step.measurements import Slot
from gradscope.probes.forward.forward_values import values_of
from gradscope.probes.forward.nonfinite_origins import (
    MOST_ORIGINS,
    Origin,
    Source,
    broken_of,
    operand_of,
    storage_of,
)
from gradscope.probes.forward.operations import plain_floats
from gradscope.recording.evidence.failures import Broken, NonfiniteSource
from gradscope.step_capture.singular_points import written

_LINEAR = frozenset({"Add", "Addmm", "Baddbmm", "MaskedFill", "Mul", "Rsub", "Sub", "Where"})
"""Operations that make NaN of finite numbers only by an unknown operand."""

_SUSPICION: dict[str, int] = {
    **dict.fromkeys(("Div", "Reciprocal", "Log", "Log2", "Log10", "Log1P", "Rsqrt"), 3),
    **dict.fromkeys(("Acos", "Asin", "Atanh", "Pow", "Sqrt", "Softmax", "LogSoftmax"), 3),
    **dict.fromkeys(("Exp", "Expm1", "Sinh", "Cosh", "Prod", "Cumprod", "Std", "Var"), 2),
    **dict.fromkeys(("Add", "Sub", "MaskedFill", "Where", "Cat", "Stack", "Index"), 0),
}
"""How likely an operation makes NaN or infinity of finite numbers; 1 if not listed."""

_OF_CUSTOM = 2
"""The same for custom functions of the script."""


@dataclass(slots=True)
class Found:
    """Origins of non-finite values."""

    origins: list[Origin] = field(default_factory=list)
    nodes: dict[int, Slot] = field(default_factory=dict)
    """By origin that is an operation: its output in the graph."""
    met: dict[int, int] = field(default_factory=dict)
    """By other origins: the first node that uses it."""
    others: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By origin: further nodes that may equally be it."""
    of_loss: int | None = None


class NonfiniteSearch:
    """Searches the values of a graph.

    Args:
        graph: The graph, traced.
        values: Its known values.
        source_of: Returns the parameter or buffer that has a storage.
    """

    def __init__(
        self, graph: Graph, values: KnownValues, source_of: Callable[[int], Source | None]
    ) -> None:
        self._graph, self._values, self._source_of = graph, values, source_of
        self._broken: dict[Slot, Broken | None] = {}
        """Kind of non-finite values, by slot."""
        self._of: dict[Slot, int | None] = {}
        """By slot: the origin of its non-finite values."""
        self._of_storage: dict[int, int | None] = {}
        self._found = Found()

    def run(self) -> Found:
        """Search, and return the origins."""
        for slot, tensor in self._values.known.items():
            if any(True for _ in plain_floats(tensor)):
                self._broken[slot] = broken_of(tensor)
        for location in self._values.order:
            for number in range(len(self._graph.nodes[location]._input_metadata) or 1):
                broken = self._broken.get((location, number))
                if broken is not None:
                    self._of[location, number] = self._origin((location, number), broken)
        self._found.of_loss = self._of.get(self._graph.root)
        return self._found

    def _origin(self, slot: Slot, broken: Broken) -> int | None:
        """Return the origin of a tensor's non-finite values."""
        if slot[0] in self._graph.leaves:
            return None  # it is reported with the first operation that uses it
        given = list(self._given(slot[0]))
        handed_on = next((one for one in given if one[1] == broken), None)
        # NaN may disappear in a comparison, and leave an infinity.
        if handed_on is None and broken == "infinity":
            handed_on = next(iter(given), None)
        if handed_on is not None:
            return self._of_given(slot[0], handed_on[0], handed_on[1])
        cause = self._of_given(slot[0], *given[0]) if given else None
        return self._of_operation(slot, broken, cause)

    def _given(self, location: int) -> Iterator[tuple[Slot | Tensor, Broken]]:
        """Yield the non-finite operands of a node, through unknown values."""
        for slot in self._known_before(location):
            broken = self._broken[slot]
            if broken is not None:
                yield slot, broken
        for constant in self._values.constants(location):
            if any(True for _ in plain_floats(constant)) and (broken := broken_of(constant)):
                yield constant, broken

    def _known_before(self, location: int) -> list[Slot]:
        """Return the nearest known tensors before a node."""
        found, (waiting, seen) = [], (list(self._values.inputs(location)), set[Slot]())
        while waiting:
            slot = waiting.pop()
            if slot is None or slot in seen:
                continue
            seen.add(slot)
            if slot in self._broken:
                found.append(slot)
            else:
                waiting += self._values.inputs(slot[0])
        return found

    def _unknown_before(self, location: int) -> list[int]:
        """Return the operations with unknown results before a node, up to known ones."""
        found, waiting = dict[int, None](), list(self._values.inputs(location))
        while waiting:
            slot = waiting.pop()
            if slot is not None and slot not in self._broken and slot[0] not in found:
                found[slot[0]] = None
                waiting += self._values.inputs(slot[0])
        # Leaves compute nothing.
        return [one for one in found if self._graph.nodes[one].next_functions]

    def _of_given(self, location: int, given: Slot | Tensor, broken: Broken) -> int | None:
        if not isinstance(given, Tensor) and given[0] in self._graph.leaves:
            given = self._graph.leaves[given[0]]
        if isinstance(given, Tensor):
            return self._of_source(location, given, broken)
        return self._of.get(given)

    def _of_source(self, location: int, tensor: Tensor, broken: Broken) -> int | None:
        """Record a tensor that existed before the forward, and the first node that uses it."""
        storage = storage_of(tensor)
        if storage not in self._of_storage:
            source = self._source_of(storage)
            kind: NonfiniteSource = source.kind if source else "tensor"
            origin = self._of_storage[storage] = self._add(
                self._name(location),
                broken,
                kind,
                tensor,
                name=source.name if source else None,
                operands=(operand_of(tensor),),
            )
            if origin is not None:
                self._found.met[origin] = location
        return self._of_storage[storage]

    def _of_operation(self, slot: Slot, broken: Broken, cause: int | None) -> int | None:
        """Record an operation that turned finite numbers or an infinity into non-finite ones."""
        # Results that autograd did not save are unknown: each of them may be the first broken one.
        candidates = sorted([*self._unknown_before(slot[0]), slot[0]], key=self._rank)
        rows = self._blocked_rows(slot)
        chosen = slot[0] if rows else candidates[-1]
        output = self._values.known.get((chosen, slot[1]), self._values.known[slot])
        origin = self._add(
            self._name(chosen),
            broken,
            "tensor" if self._is_of_unseen(chosen, slot[0], broken) else "operation",
            output,
            operands=tuple(self._operands(chosen)),
            number=self._number(chosen),
            blocked_rows=rows,
            because_of=cause,
        )
        if origin is not None:
            self._found.nodes[origin] = (chosen, slot[1] if chosen == slot[0] else 0)
            unsure = [] if rows else [one for one in candidates if one != chosen]
            self._found.others[origin] = tuple(unsure)
        return origin

    def _rank(self, location: int) -> tuple[int, int]:
        base, _, number = self._graph.operations[location].partition("Backward")
        suspicion = _SUSPICION.get(base, 1) if number.isdigit() else _OF_CUSTOM
        divisor = self._values.saved(location, "other") if base == "Div" else None
        # A quotient by numbers other than 0 breaks nothing by itself.
        if divisor is not None and not operand_of(divisor).zeros:
            suspicion = 1
        return suspicion, self._values.order.index(location)

    def _is_of_unseen(self, chosen: int, location: int, broken: Broken) -> bool:
        """Return whether only an unknown operand can have turned finite numbers into NaN."""
        base = self._graph.operations[chosen].partition("Backward")[0]
        inputs = self._values.inputs(chosen)
        return chosen == location and broken == "NaN" and base in _LINEAR and None in inputs

    def _add(
        self,
        operation: str,
        makes: Broken,
        source: NonfiniteSource,
        output: Tensor,
        **found: object,
    ) -> int | None:
        origins = self._found.origins
        if len(origins) >= MOST_ORIGINS:
            return None
        origins.append(
            Origin(
                len(origins),
                operation,
                None,
                makes,
                source,
                broken=values_of(output).nonfinite,
                dtype=dtype_name(output.dtype),
                **found,  # type: ignore[arg-type]
            )
        )
        return len(origins) - 1

    def _operands(self, location: int) -> Iterator:  # type: ignore[type-arg]
        given = [self._values.known.get(slot) for slot in self._values.inputs(location) if slot]
        for tensor in (*given, *self._values.constants(location)):
            if tensor is not None and any(True for _ in plain_floats(tensor)):
                yield operand_of(tensor)

    def _number(self, location: int) -> float | None:
        exponent = saved_value(self._graph.nodes[location], "exponent")
        return float(exponent) if isinstance(exponent, int | float) else None

    def _name(self, location: int) -> str:
        return written(self._graph.operations[location])

    def _blocked_rows(self, slot: Slot) -> int:
        """Return the number of softmax input rows that contain only -inf."""
        if not self._graph.operations[slot[0]].startswith(("SoftmaxBackward", "LogSoftmaxBack")):
            return 0
        result, dim = self._values.known[slot], saved_value(self._graph.nodes[slot[0]], "dim")
        if not isinstance(dim, int) or not result.dim():
            return 0
        scores = self._values.inputs(slot[0])[0]
        known = None if scores is None else self._values.known.get(scores)
        if known is not None:
            return int((known == -math.inf).all(dim=dim).sum())
        # In rows with other NaN or infinities, the values before the mask would be needed.
        return int(result.isnan().all(dim=dim).sum())
