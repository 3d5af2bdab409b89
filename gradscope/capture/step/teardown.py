"""Frees deep graphs without a stack overflow."""

import sys

from torch.autograd.graph import Node

DEEP = 5_000
"""Graphs with fewer nodes can be freed recursively without a stack overflow."""

SPACING = 1_000

_waiting: list[list[Node]] = []
"""For each deep graph that other code still holds: nodes in the order of the forward."""


def release(nodes: list[Node]) -> None:
    """Empty a list of a graph's nodes, so that freeing them does not overflow the stack."""
    # A node that is freed frees the nodes that it refers to, recursively. The anchors divide a
    # deep graph into pieces of bounded depth.
    if len(nodes) > DEEP:
        nodes[:] = [node for node in nodes if node.next_functions]
        nodes.sort(key=_created, reverse=True)
        _waiting.append(nodes[::SPACING][::-1])
    nodes.clear()
    free_the_dead()


def free_the_dead() -> None:
    """Free the deep graphs whose loss is gone."""
    for anchors in list(_waiting):
        while anchors and _is_ours_alone(anchors):
            anchors.pop()
        if not anchors:
            _waiting.remove(anchors)


def _created(node: Node) -> int:
    number: int = node._sequence_nr()
    return number


def _is_ours_alone(anchors: list[Node]) -> bool:
    # The list and the call's argument hold one reference each; a live graph holds a third.
    return sys.getrefcount(anchors[-1]) == 2
