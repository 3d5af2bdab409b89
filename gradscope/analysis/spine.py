"""The chain of operations that every gradient passes, and how norms change along it."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from statistics import median

from gradscope.analysis.attention import without_scores
from gradscope.analysis.recording_index import RecordingIndex, StepView, step_view
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import NodeRecord, TensorRef

MATCHED = 3
"""Minimum number of operations of one type in a trend."""

_AS_HIGH = 0.9
"""A split that separates the levels by at least this share of the best split is as good."""

_MOVING = (
    "AsStrided Cat Chunk Clone Copy Diagonal Expand Flip Gather Index IndexSelect Narrow Pad "
    "Repeat Roll Select Slice Split SplitWithSizes Stack ToCopy Unbind Unfold"
)
"""Operations that only move elements."""

_MOVES = frozenset(f"{name}Backward0" for name in _MOVING.split())


@dataclass(frozen=True, slots=True)
class Point:
    """The gradient with respect to what an operation of the spine put out."""

    node: NodeRecord
    level: float
    """log10 of the norm."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How a gradient changes from one operation to an earlier one of the forward."""

    matched: tuple[Point, ...]
    """Operations of one type, in the order of backward."""
    between: tuple[Point, ...]
    """All operations of the spine from the first of them to the last."""

    @property
    def decades(self) -> float:
        """Powers of ten by which the gradient grows during backward; negative where it shrinks."""
        return self.matched[-1].level - self.matched[0].level

    @property
    def steady(self) -> float:
        """The same without the largest share of a single operation.

        What one operation does alone, as the attention of a decoder to an encoder, is no trend.
        """
        sign = math.copysign(1.0, self.decades)
        steps = [sign * (after.level - before.level) for before, after in pairwise(self.matched)]
        largest = sorted(steps)[-2:]
        return sign * max(0.0, sum(steps) - (largest[-1] - largest[0])) if steps else 0.0

    @property
    def typical(self) -> float:
        """The same if every operation did as much as the median one.

        A few operations in an unusual state, as normalisations of zeros, do not change it.
        """
        steps = [after.level - before.level for before, after in pairwise(self.matched)]
        return len(steps) * median(steps) if steps else 0.0

    @property
    def slope(self) -> float:
        """Decades from one operation of the type to the next."""
        return self.decades / max(1, len(self.matched) - 1)

    def changes(self) -> Iterator[tuple[NodeRecord, float]]:
        """Yield the change of the gradient by the backward of each operation, in decades."""
        for before, after in pairwise(self.between):
            yield before.node, after.level - before.level


def strongest(points: Sequence[Point], sign: int) -> Trend | None:
    """Return the largest rise (or fall, for -1) between operations of one type.

    Of several types the one that rises least.
    """
    positions = defaultdict[str, list[int]](list)
    for position, point in enumerate(points):
        if point.node.kind != "view" and point.node.operation not in _MOVES:
            positions[point.node.operation].append(position)
    most = max((len(found) for found in positions.values()), default=0)
    return mildest(
        [
            _rise(points, found, sign)
            for found in positions.values()
            if len(found) >= max(MATCHED, most / 2)
        ]
    )


def _rise(points: Sequence[Point], positions: Sequence[int], sign: int) -> Trend:
    """Return the part of a chain over which the level rises most, or falls most for -1."""
    lowest, best, ends = 0, 0.0, (0, 0)
    for end, position in enumerate(positions):
        if sign * (points[position].level - points[positions[lowest]].level) < 0:
            lowest = end
        rise = sign * (points[position].level - points[positions[lowest]].level)
        if rise > best:
            best, ends = rise, (lowest, end)
    chosen = positions[ends[0] : ends[1] + 1]
    return Trend(
        tuple(points[position] for position in chosen), tuple(points[chosen[0] : chosen[-1] + 1])
    )


def jump(points: Sequence[Point]) -> Trend | None:
    """Return the two operations between which the median level changes most."""
    if len(points) < 2:
        return None
    levels = [point.level for point in points]
    before, after = running_medians(levels), running_medians(levels[::-1])[::-1]
    heights = [after[split] - before[split - 1] for split in range(1, len(levels))]
    highest = max(heights, key=abs)
    # Medians hardly change from one split to the next: the operation is the one that does most.
    # The quotient is positive only for changes in the direction of the largest.
    positions = [p for p, height in enumerate(heights, 1) if height / (highest or 1) >= _AS_HIGH]
    sign = math.copysign(1.0, highest)
    position = max(
        positions, key=lambda position: sign * (levels[position] - levels[position - 1]), default=1
    )
    low = Point(points[position - 1].node, levels[position] - highest)
    return Trend((low, points[position]), (low, points[position]))


def running_medians(values: Sequence[float]) -> list[float]:
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


def mildest(trends: Sequence[Trend | None]) -> Trend | None:
    """Return the trend that changes least; None without any."""
    found = [trend for trend in trends if trend is not None]
    if not found:
        return None
    return min(found, key=lambda trend: abs(trend.steady))


class ForwardLevels:
    """Orders of magnitude of the first forward's values: log10 of their root mean squares."""

    def __init__(self, indexed: RecordingIndex) -> None:
        self._stats = {stat.tensor: stat for stat in indexed.recording.evidence_of(ForwardStat)}

    def level(self, node: NodeRecord) -> float | None:
        """Return a node's level; None if it was not measured, is zero or not finite."""
        stat = self._stats.get(TensorRef(node=node.index, slot=0))
        if stat is None or not 0 < stat.rms < math.inf:
            return None
        return math.log10(stat.rms)


@dataclass(slots=True)
class Dominators:
    """The dominator tree of a backward graph, rooted at the loss."""

    _parents: dict[int, int] = field(default_factory=dict)
    """By node: its immediate dominator; the loss has itself."""
    _levels: dict[int, int] = field(default_factory=dict)
    _jumps: dict[int, int] = field(default_factory=dict)
    """By node: a dominator further up, so that two nodes meet in logarithmic time."""

    @classmethod
    def of(cls, nodes: Iterable[NodeRecord], users: Mapping[int, tuple[int, ...]]) -> "Dominators":
        """Return the tree of all nodes but leaves.

        Args:
            nodes: Of one graph.
            users: By node: the nodes that hand it gradients.
        """
        tree = cls()
        # No edge leads to a smaller depth, which therefore is a topological order.
        for node in sorted(nodes, key=lambda node: node.depth):
            if node.kind in ("parameter", "leaf"):
                continue
            meeting: int | None = None
            for user in users.get(node.index, ()):
                meeting = user if meeting is None else tree._meeting(meeting, user)
            tree._add(node.index, meeting)
        return tree

    def chain(self, node: int) -> Iterator[int]:
        """Yield a node and its dominators, up to the loss."""
        yield node
        while self._parents[node] != node:
            node = self._parents[node]
            yield node

    def _add(self, node: int, parent: int | None) -> None:
        if parent is None:
            self._parents[node] = self._jumps[node] = node
            self._levels[node] = 0
            return
        self._parents[node] = parent
        level, jump = self._levels, self._jumps[parent]
        level[node] = level[parent] + 1
        # Myers' skip pointers: jumps of equal length in a row are joined to one.
        equal = level[parent] - level[jump] == level[jump] - level[self._jumps[jump]]
        self._jumps[node] = self._jumps[jump] if equal else parent

    def _meeting(self, one: int, other: int) -> int:
        """Return the lowest common ancestor of two nodes."""
        parents, levels, jumps = self._parents, self._levels, self._jumps
        if levels[one] < levels[other]:
            one, other = other, one
        while levels[one] > levels[other]:
            one = jumps[one] if levels[jumps[one]] >= levels[other] else parents[one]
        while one != other:
            apart = jumps[one] != jumps[other]
            one, other = (jumps[one], jumps[other]) if apart else (parents[one], parents[other])
        return one


LATER = 3
"""Number of the user's own steps that show whether a state lasts, if there are no probes."""

_RESHAPED_WEIGHTS = frozenset({"ToCopyBackward0", "CloneBackward0", "WeightNormInterfaceBackward0"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts that the spine of one step shows."""

    growth: Trend | None
    """Strongest growth of the gradient during backward; None without a chain of similar operations.
    """
    loss: Trend | None
    """Strongest decrease of the gradient."""
    jump: Trend | None
    """The single operation around which the gradient's typical size differs most."""
    length: int
    """Number of operations on the spine."""


class Spines:
    """The spines of the steps of a recording."""

    def __init__(self, indexed: RecordingIndex) -> None:
        self._case = indexed
        self._chains: dict[int | None, tuple[tuple[int, ...], ...]] = {}

    @cached_property
    def first(self) -> Reading:
        """Reading of the first step."""
        return self.read(self._case.first)

    def read(self, view: StepView) -> Reading:
        """Return the reading of one step."""
        spines = [self._points(view, chain) for chain in self.chains(view)]
        growths = [strongest(points, 1) for points in spines]
        losses = [strongest(points, -1) for points in spines]
        return Reading(
            growth=mildest(growths),
            loss=mildest(losses),
            jump=mildest([jump(points) for points in spines]),
            length=min((len(points) for points in spines), default=0),
        )

    @cached_property
    def later(self) -> Reading | None:
        """Reading of the last of the next few steps, which were probes or the user's own.

        None where there was none, or none with a finite gradient.
        """
        for view in reversed(self.later_views):
            reading = self.read(view)
            if reading.length:
                return reading
        return None

    @cached_property
    def has_later(self) -> bool:
        """Whether there was a backward after an optimizer step."""
        return bool(self.later_views)

    @cached_property
    def later_views(self) -> tuple[StepView, ...]:
        """The probes, or the next few steps of the user's own that were measured."""
        if self._case.probes:
            return self._case.probes
        recording = self._case.recording
        steps = [step for step in recording.steps if step.kind == "step"][1 : 1 + LATER]
        measured = {stat.step for stat in recording.tensor_stats}
        return tuple(step_view(recording, step) for step in steps if step.index in measured)

    def forward_growth(self) -> Trend | None:
        """Return the largest growth of the first forward's values, with their levels."""
        levels = ForwardLevels(self._case)
        spines = []
        for chain in self.chains(self._case.first):
            nodes = [self._case.recording.nodes[index] for index in chain]
            found = [(node, levels.level(node)) for node in nodes]
            spines.append([Point(node, level) for node, level in found if level is not None])
        return mildest([strongest(points, -1) for points in spines])

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
        weighing = [node.depth for node in operations if self._weighs_data(node.index)]
        if not weighing:
            return  # a function without weights: how its derivative grows is not for layers to mend
        head = min(weighing)
        for target in dict.fromkeys((deepest.index, first.index)):
            chain = without_scores(self._case, list(tree.chain(target))[::-1])
            yield tuple(n for n in chain if self._case.recording.nodes[n].depth >= head)

    def _weighs_data(self, node: int) -> bool:
        """Return whether an operation takes a parameter together with something else.

        What takes parameters alone may be a penalty on them, which is part of the loss.
        """
        kinds = [self._is_weight(ref.node) for ref in self._case.successors.get(node, ())]
        return any(kinds) and not all(kinds)

    def _is_weight(self, node: int) -> bool:
        """Return whether a node is a parameter, or one in another shape or type."""
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
