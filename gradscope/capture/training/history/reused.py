"""Finds operations that were computed once, from weights that have changed since."""

from collections.abc import Collection

from torch.autograd.graph import Node

from gradscope.capture.source.lines import Line, created
from gradscope.capture.step.graph import MOST_NODES, behind, leaf_of, release

_MOVING = (
    "Alias AsStrided Diagonal Expand Narrow Permute Select Slice Split Squeeze T Transpose Unbind "
    "Unsqueeze View"
)
"""Views."""

_VIEWS = frozenset(f"{name}Backward{number}" for name in _MOVING.split() for number in (0, 1))
"""Operations whose result shows each change of its input."""


class ReusedOperations:
    """The operations of earlier steps that the backward passes of each line use again."""

    def __init__(self) -> None:
        self._before: dict[Line | None, tuple[frozenset[int], dict[int, int]]] = {}
        """By line: the operations that its previous pass used, and the versions of the leaves
        behind them, by `id`."""

    def are_outdated(self, line: Line | None, root: Node, crossed: frozenset[int]) -> bool:
        """Return whether a graph uses numbers again that an older state of the weights made.

        Args:
            line: Line of the backward.
            root: Node that it starts from.
            crossed: Sequence numbers of the operations of earlier steps that the graph uses.
        """
        if not crossed:
            self._before.pop(line, None)
            return False
        used, versions = self._before.get(line, (frozenset[int](), dict[int, int]()))
        now = _versions(root, crossed)
        self._before[line] = (crossed, now)
        return not used.isdisjoint(crossed) and any(
            one in now and now[one] != version for one, version in versions.items()
        )


def _versions(root: Node, crossed: Collection[int]) -> dict[int, int]:
    """Return the versions of the leaves that some operations computed numbers from, by `id`."""
    # With the flag: a leaf may be reached by views alone and by a computation as well.
    seen: set[tuple[Node, bool]] = set()
    waiting = [
        (node, False)
        for node in behind([root], until=lambda node: created(node) in crossed)
        if created(node) in crossed
    ]
    versions: dict[int, int] = {}
    while waiting and len(seen) < MOST_NODES:
        node, is_computed = waiting.pop()
        leaf = leaf_of(node)
        if leaf is not None:
            if is_computed:
                versions[id(leaf)] = leaf._version
            continue
        is_computed = is_computed or node.name() not in _VIEWS
        for following, _ in node.next_functions:
            if following is not None and (following, is_computed) not in seen:
                seen.add((following, is_computed))
                waiting.append((following, is_computed))
    nodes = [node for node, _ in seen]
    seen.clear()
    release(nodes)
    return versions
