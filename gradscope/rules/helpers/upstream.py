"""Where an operation was written, what lies before it, and whether a weight comes after it."""

from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext


def line_of(context: RuleContext, node: NodeRecord) -> int | None:
    """Return the line of an operation, else the one that made the layer to which it belongs.

    A model of torch's own layers alone has no line of the user's in its forward.
    """
    if node.site is not None or node.module_call is None:
        return node.site
    modules = context.recording.modules
    module = modules[context.recording.calls[node.module_call].module]
    while module.site is None and module.parent is not None:
        module = modules[module.parent]
    return module.site


def parameters_before(context: RuleContext, nodes: list[int]) -> tuple[int, ...]:
    """Return the parameters whose gradient comes through one of some operations."""
    return tuple(sorted(context.parameters_behind(nodes)))


def weight_follows(context: RuleContext, node: int) -> bool:
    """Return whether an operation with a parameter of its own takes what an operation led to.

    If not, it belongs to the loss, or is the output that the loss is taken of.
    """
    waiting, seen = list(context.users.get(node, ())), {node}
    while waiting:
        user = waiting.pop()
        if user in seen:
            continue
        seen.add(user)
        if _takes_parameter(context, user):
            return True
        waiting += context.users.get(user, ())
    return False


def is_in_model(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a module of the model made a node."""
    recording = context.recording
    if node.module_call is None:
        return False
    return recording.modules[recording.calls[node.module_call].module].in_model


def _takes_parameter(context: RuleContext, node: int) -> bool:
    for ref in context.successors.get(node, ()):
        taken = context.recording.nodes[ref.node]
        while taken.kind == "view":
            onward = context.successors.get(taken.index, ())
            if not onward:
                break
            taken = context.recording.nodes[onward[0].node]
        if taken.kind == "parameter":
            return True
    return False
