"""The spine of a backward graph: the operations that every gradient path crosses.

Along it, and only there, norms tell how a gradient grows or shrinks with depth: what is beside it,
as a branch that starts at zero, is one of several ways. Norms are compared between operations of
the same type, which cancels what neighbours undo (a convolution and the normalisation after it),
and only from the last operation on that takes weights: what is behind it is the loss.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.recording.step_view import StepView, step_view
from gradscope.rules.case import Case
from gradscope.rules.dominators import Dominators
from gradscope.rules.forward_levels import ForwardLevels

MATCHED = 3
"""Operations of one type that make a trend."""

LATER = 3
"""Where there are no probes, so many of the user's own steps tell what lasts."""

_MOVING = (
    "AsStrided Cat Chunk Clone Copy Diagonal Expand Flip Gather Index IndexSelect Narrow Pad "
    "Repeat Roll Select Slice Split SplitWithSizes Stack ToCopy Unbind Unfold"
)
"""Operations that only move elements."""
_MOVES = frozenset(f"{name}Backward0" for name in _MOVING.split())
_RESHAPED_WEIGHTS = frozenset({"ToCopyBackward0", "CloneBackward0", "WeightNormInterfaceBackward0"})


@dataclass(frozen=True, slots=True)
class Point:
    """The gradient with respect to what an operation of the spine put out."""

    node: NodeRecord
    level: float
    """log10 of its norm."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How a gradient changes from one operation to an earlier one of the forward."""

    matched: tuple[Point, ...]
    """Operations of one type, in the order of backward."""
    between: tuple[Point, ...]
    """Every operation of the spine from the first of them to the last."""

    @property
    def decades(self) -> float:
        """By how many powers of ten it grows on its way back; negative where it shrinks."""
        return self.matched[-1].level - self.matched[0].level

    @property
    def steady(self) -> float:
        """The same, where no operation counts for more than the one that does second most.

        What one operation does alone, as the attention of a decoder to an encoder, is no trend.
        """
        sign = math.copysign(1.0, self.decades)
        steps = [sign * (after.level - before.level) for before, after in pairwise(self.matched)]
        largest = sorted(steps)[-2:]
        return sign * max(0.0, sum(steps) - (largest[-1] - largest[0])) if steps else 0.0

    @property
    def slope(self) -> float:
        """Decades from one operation of the type to the next."""
        return self.decades / max(1, len(self.matched) - 1)

    @property
    def straightness(self) -> float:
        """R2 of a line through the levels: 1 where each operation does as much as the others."""
        levels = [point.level for point in self.matched]
        count, mean = len(levels), sum(levels) / len(levels)
        middle = (count - 1) / 2
        spread = sum((level - mean) ** 2 for level in levels)
        if not spread:
            return 1.0
        shared = sum((place - middle) * (level - mean) for place, level in enumerate(levels))
        return shared**2 / (spread * sum((place - middle) ** 2 for place in range(count)))

    def changes(self) -> Iterator[tuple[NodeRecord, float]]:
        """Yield by how many decades the backward of each operation changes the gradient."""
        for before, after in pairwise(self.between):
            yield before.node, after.level - before.level


@dataclass(frozen=True, slots=True)
class Reading:
    """What the spine of one step tells."""

    growth: Trend | None
    """Where the gradient grows most on its way back; None without a chain of like operations."""
    loss: Trend | None
    """Where it shrinks most."""
    jump: Trend | None
    """The single operation around which the gradient's typical size differs most."""
    length: int
    """Operations on the spine."""


class Spines:
    """The spines of the steps of a recording."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._chains: dict[int | None, tuple[tuple[int, ...], ...]] = {}

    @cached_property
    def first(self) -> Reading:
        """What the first step tells."""
        return self.read(self._case.first)

    def read(self, view: StepView) -> Reading:
        """Return what one step tells."""
        spines = [self._points(view, chain) for chain in self.chains(view)]
        growths = [_strongest(points, 1) for points in spines]
        losses = [_strongest(points, -1) for points in spines]
        return Reading(
            growth=_mildest(growths),
            loss=_mildest(losses),
            jump=_mildest([_jump(points) for points in spines]),
            length=min((len(points) for points in spines), default=0),
        )

    def later(self) -> Reading | None:
        """Return what the last of the next few steps tells, which were probes or the user's own.

        None where there was none, or none with a finite gradient.
        """
        for view in reversed(self._later_views):
            reading = self.read(view)
            if reading.length:
                return reading
        return None

    @cached_property
    def has_later(self) -> bool:
        """Whether there was a backward after an optimizer step."""
        return bool(self._later_views)

    @cached_property
    def _later_views(self) -> tuple[StepView, ...]:
        if self._case.probes:
            return self._case.probes
        recording = self._case.recording
        steps = [step for step in recording.steps if step.kind == "step"][1 : 1 + LATER]
        measured = {stat.step for stat in recording.tensor_stats}
        return tuple(step_view(recording, step) for step in steps if step.index in measured)

    def forward_growth(self) -> Trend | None:
        """Return where the first forward's values grow most; the levels are those of values."""
        levels = ForwardLevels(self._case)
        spines = []
        for chain in self.chains(self._case.first):
            nodes = [self._case.recording.nodes[index] for index in chain]
            found = [(node, levels.level(node)) for node in nodes]
            spines.append([Point(node, level) for node, level in found if level is not None])
        return _mildest([_strongest(points, -1) for points in spines])

    def chains(self, view: StepView) -> tuple[tuple[int, ...], ...]:
        """Return the spines of two targets, in the order of backward and without the loss.

        One is that of the deepest operation, one that of the first; where they differ, the milder
        judgement holds.
        """
        graph = None if view.step is None else view.step.graph
        if graph not in self._chains:
            self._chains[graph] = tuple(self._find(view))
        return self._chains[graph]

    def _find(self, view: StepView) -> Iterator[tuple[int, ...]]:
        operations = [node for node in view.nodes if node.kind in ("operation", "view")]
        if not operations:
            return
        tree = Dominators.of(view.nodes, self._case.users)
        deepest = max(operations, key=lambda node: node.depth)
        numbered = [node for node in operations if node.sequence is not None]
        first = min(numbered, key=lambda node: node.sequence or 0, default=deepest)
        head = min((n.depth for n in operations if self._weighs_data(n.index)), default=0)
        for target in dict.fromkeys((deepest.index, first.index)):
            chain = list(tree.chain(target))[::-1]
            yield tuple(n for n in chain if self._case.recording.nodes[n].depth >= head)

    def _weighs_data(self, node: int) -> bool:
        """Return whether an operation takes a parameter together with something else.

        What takes parameters alone may be a penalty on them, which is part of the loss.
        """
        kinds = [self._is_weight(ref.node) for ref in self._case.successors.get(node, ())]
        return any(kinds) and not all(kinds)

    def _is_weight(self, node: int) -> bool:
        """Return whether a node is a parameter, as it is or under another shape or type."""
        record = self._case.recording.nodes[node]
        while record.kind == "view" or record.operation in _RESHAPED_WEIGHTS:
            following = self._case.successors.get(record.index)
            if not following:
                return False
            record = self._case.recording.nodes[following[0].node]
        return record.kind == "parameter"

    def _points(self, view: StepView, chain: Sequence[int]) -> list[Point]:
        """Return the measured gradients along a spine, up to where they are zero or not finite."""
        points = []
        for index in chain:
            node = self._case.recording.nodes[index]
            norm = _norm(view, node)
            if norm is None:
                continue
            if norm == 0 or not math.isfinite(norm):
                break
            points.append(Point(node, math.log10(norm)))
        return points


def _norm(view: StepView, node: NodeRecord) -> float | None:
    """Return the norm of the gradient with respect to a node's outputs; None of scalars."""
    squares = []
    for slot, shape in enumerate(node.outputs):
        if shape is None or math.prod(shape.dims) <= 1:
            continue
        stat = view.tensor_stats.get(view.measured(TensorRef(node=node.index, slot=slot)))
        if stat is not None and stat.gradient is not None:
            squares.append(stat.gradient.norm)
    return math.hypot(*squares) if squares else None


def _strongest(points: Sequence[Point], sign: int) -> Trend | None:
    """Return the largest rise (or fall, for -1) between operations of one type.

    Of several types the one that rises least.
    """
    places = defaultdict[str, list[int]](list)
    for place, point in enumerate(points):
        if point.node.kind != "view" and point.node.operation not in _MOVES:
            places[point.node.operation].append(place)
    most = max((len(found) for found in places.values()), default=0)
    return _mildest(
        [
            _rise(points, found, sign)
            for found in places.values()
            if len(found) >= max(MATCHED, most / 2)
        ]
    )


def _rise(points: Sequence[Point], places: Sequence[int], sign: int) -> Trend:
    """Return the part of a chain over which the level rises most, or falls most for -1."""
    lowest, best, ends = 0, 0.0, (0, 0)
    for end, place in enumerate(places):
        if sign * (points[place].level - points[places[lowest]].level) < 0:
            lowest = end
        rise = sign * (points[place].level - points[places[lowest]].level)
        if rise > best:
            best, ends = rise, (lowest, end)
    chosen = places[ends[0] : ends[1] + 1]
    return Trend(
        tuple(points[place] for place in chosen), tuple(points[chosen[0] : chosen[-1] + 1])
    )


def _jump(points: Sequence[Point]) -> Trend | None:
    """Return the two operations between which the median level changes most."""
    levels = [point.level for point in points]
    before, after = _running_medians(levels), _running_medians(levels[::-1])[::-1]
    if len(points) < 2:
        return None
    place = max(range(1, len(levels)), key=lambda split: abs(after[split] - before[split - 1]))
    height = after[place] - before[place - 1]
    first = Point(points[place - 1].node, points[place].level - height)
    pair = (first, points[place])
    return Trend(pair, pair)


def _running_medians(values: Sequence[float]) -> list[float]:
    """Return the median of the first 1, 2, 3, … values."""
    low: list[float] = []  # a heap of negated values
    high: list[float] = []
    medians = []
    for value in values:
        heapq.heappush(low, -heapq.heappushpop(high, value))
        if len(low) > len(high):
            heapq.heappush(high, -heapq.heappop(low))
        medians.append(high[0] if len(high) > len(low) else (high[0] - low[0]) / 2)
    return medians


def _mildest(trends: Sequence[Trend | None]) -> Trend | None:
    """Return the trend that changes least; None where one of them is missing."""
    found = [trend for trend in trends if trend is not None]
    if not found:
        return None
    return min(found, key=lambda trend: abs(trend.steady))
