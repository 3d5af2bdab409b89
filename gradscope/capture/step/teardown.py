"""Lets go of deep graphs, and keeps Python's garbage collector away from large ones."""

import sys

from torch.autograd.graph import Node

DEEP = 5_000
"""Graphs of fewer nodes are small enough for the stack."""

SPACING = 1_000

_waiting: list[list[Node]] = []
"""Of each deep graph that somebody else still holds: nodes in the order of the forward."""


def let_go(nodes: list[Node]) -> None:
    """Empty a list of a graph's nodes; see to it that their end does not overflow the stack."""
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
    # The list and the call's argument hold one reference each; the graph holds a third if it lives.
    return sys.getrefcount(anchors[-1]) == 2
