"""Which operations every gradient path to a tensor passes: dominators of a backward graph."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gradscope.recording.records import NodeRecord


@dataclass(slots=True)
class Dominators:
    """The dominator tree of a backward graph, rooted at the loss."""

    _parents: dict[int, int] = field(default_factory=dict)
    """By node: its immediate dominator; the loss is its own."""
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
