"""Records which gradients the custom `autograd.Function`s of a backward did not return."""

from collections.abc import Iterator, Set

from torch.autograd import Function

from gradscope.capture.source.statements import function_of, line_of_returned
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.custom_functions import input_names
from gradscope.recording.evidence.failures import WithheldRecord


def probe_withheld_gradients(context: ProbeContext) -> str | None:
    """Record the parameters without a gradient that were given to a custom function."""
    if context.opaque:
        return "compiled code cannot be observed"
    for function, position, parameter in dict.fromkeys(_without_gradient(context)):
        names = input_names(function)
        context.assembler.note(
            WithheldRecord(
                function=function.__name__,
                input=names[position] if position < len(names) else f"input {position}",
                parameter=parameter,
                returned=context.assembler.site_of(line_of_returned(function, position)),
            )
        )
    return None


def _without_gradient(context: ProbeContext) -> Iterator[tuple[type[Function], int, int]]:
    """Yield function, index of the input, and each parameter that the input was made of."""
    graph = context.capture.graph
    missing = {
        node: parameter
        for parameter, node in context.capture.parameter_nodes().items()
        if not context.measured.has_gradient(parameter) and graph.leaves[node].grad is None
    }
    if not any(function_of(node) for node in graph.nodes) or not missing:
        return
    given = {node for node, _ in context.measured.arrived}
    users: dict[int, list[int]] = {}
    for user, successors in enumerate(graph.successors):
        for following, _ in successors:
            users.setdefault(following, []).append(user)
    for start, parameter in missing.items():
        for position, user in _ends(start, users, given):
            function = function_of(graph.nodes[user])
            if function is not None and not function.__module__.startswith("torch."):
                followers = [node for node, _ in graph.nodes[user].next_functions]
                yield function, followers.index(graph.nodes[position]), parameter


def _ends(start: int, users: dict[int, list[int]], given: Set[int]) -> Iterator[tuple[int, int]]:
    """Yield the nodes that were given a gradient and passed none on towards a node.

    Each comes with the node to which it passed none.
    """
    waiting, seen = [start], {start}
    while waiting:
        position = waiting.pop()
        for user in users.get(position, ()):
            # It got a gradient, and its successor none: it is where the gradient was withheld.
            if user in given:
                yield position, user
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
