"""The sum of which a loss is made: its terms, through weights and means."""

from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext

SUMS = frozenset({"AddBackward0", "RsubBackward0", "RsubBackward1", "SubBackward0"})

_TERMS = SUMS | {"CatBackward0", "StackBackward0"}

_WEIGHTS = frozenset({"DivBackward0", "MulBackward0"})

_HANDED_ON = frozenset(
    {
        "CloneBackward0",
        "MeanBackward0",
        "MeanBackward1",
        "NegBackward0",
        "SumBackward0",
        "SumBackward1",
        "ToCopyBackward0",
    }
)


def sums_of_loss(context: RuleContext) -> dict[int, NodeRecord]:
    """Return the operations that add the terms of the loss, by node.

    Between them and the loss lie only weights, means, and further sums; all of them are numbers, or
    stacks of a few.
    """
    waiting = [node.index for node in context.first.nodes if node.depth == 0]
    found: dict[int, NodeRecord] = {}
    while waiting:
        node = context.recording.nodes[waiting.pop()]
        inputs = [ref.node for ref in context.successors.get(node.index, ())]
        if node.operation in _TERMS and _is_number(node):
            found[node.index] = node
            waiting += [one for one in inputs if one not in found]
        elif node.kind == "view" or node.operation in _HANDED_ON:
            waiting += [one for one in inputs if _is_stack(context.recording.nodes[one])]
        elif node.operation in _WEIGHTS and len(inputs) == 1:
            waiting += inputs
    return found


def _is_number(node: NodeRecord) -> bool:
    return _elements(node) == 1 or node.operation in ("CatBackward0", "StackBackward0")


def _is_stack(node: NodeRecord) -> bool:
    """Return whether a tensor is a number, or a stack of numbers."""
    is_stack = node.operation in ("CatBackward0", "StackBackward0")
    return _elements(node) == 1 or (is_stack and _elements(node) <= 64)


def _elements(node: NodeRecord) -> int:
    shape = node.outputs[0] if node.outputs else None
    if shape is None:
        return 0
    total = 1
    for size in shape.dims:
        total *= size
    return total
