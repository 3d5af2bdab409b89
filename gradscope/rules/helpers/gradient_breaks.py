"""Where backward's numbers stop being finite."""

from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import GradientStat, NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.singularities import SINGULARITIES, plain_name


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBreak:
    """An operation that was given a finite gradient and returned one that is not."""

    node: NodeRecord
    given: GradientStat
    returned: GradientStat
    parameters: tuple[int, ...]
    """Parameters whose gradient is not finite because of this operation."""
    order: int
    """When backward came to it."""


def gradient_breaks(context: RuleContext) -> tuple[GradientBreak, ...]:
    """Return the breaks of the first step, in backward's order."""
    stats = context.shared(forward_stats)
    blamed: dict[TensorRef, list[NodeRecord]] = {}
    for node in context.first.nodes:
        if node.kind == "operation" and _given(context, node) is not None:
            for ref in context.successors.get(node.index, ()):
                if _broke(context, ref):
                    blamed.setdefault(ref, []).append(node)
    broken: dict[int, list[TensorRef]] = {}
    for ref, nodes in blamed.items():
        singular = [node for node in nodes if is_singular(stats, node)]
        for node in singular or nodes:
            broken.setdefault(node.index, []).append(ref)
    found = [_break(context, context.recording.nodes[node], refs) for node, refs in broken.items()]
    return tuple(sorted((one for one in found if one), key=lambda one: one.order))


def _break(context: RuleContext, node: NodeRecord, broken: list[TensorRef]) -> GradientBreak | None:
    given, returned = _given(context, node), gradient_of(context, broken[0])
    if given is None or returned is None:
        return None
    return GradientBreak(
        node=node,
        given=given[1],
        returned=returned,
        parameters=_spoilt(context, broken),
        order=given[0],
    )


def is_singular(stats: dict[TensorRef, ForwardStat], node: NodeRecord) -> bool:
    """Return whether an operation's own values say that its derivative is infinite."""
    singularity = SINGULARITIES.get(plain_name(node.operation))
    output = stats.get(TensorRef(node=node.index, slot=0))
    if singularity is None or output is None:
        return False
    counts = {"zeros": output.zeros, "nonfinite": output.nonfinite, "none": 1}
    return counts[singularity.sign] > 0


def gradient_of(context: RuleContext, ref: TensorRef) -> GradientStat | None:
    """Return the gradient with respect to a tensor or a parameter, None where it has no numbers."""
    ref = context.first.measured(ref)
    parameter = context.recording.nodes[ref.node].parameter
    if parameter is not None:
        left = context.parameter_stat(parameter)
        return None if left is None else left.gradient
    stat = context.tensor_stat(ref.node, ref.slot)
    return None if stat is None else stat.gradient


def forward_stats(context: RuleContext) -> dict[TensorRef, ForwardStat]:
    """Return what the forward's tensors held, as far as it was examined."""
    return {stat.tensor: stat for stat in context.recording.evidence_of(ForwardStat)}


def forward_inputs(context: RuleContext, node: int) -> tuple[TensorRef, ...]:
    """Return the tensors that an operation took, of views the tensors that they view."""
    found = []
    for ref in context.successors.get(node, ()):
        while context.recording.nodes[ref.node].kind == "view":
            onward = context.successors.get(ref.node, ())
            if not onward:
                break
            ref = onward[0]
        found.append(ref)
    return tuple(found)


def _is_finite(gradient: GradientStat | None) -> bool:
    return gradient is None or not gradient.is_broken


def _given(context: RuleContext, node: NodeRecord) -> tuple[int, GradientStat] | None:
    """Return order and numbers of the gradient a node was given; None for none or a broken one."""
    arrived = _arrived(context, node)
    if not arrived or not all(_is_finite(gradient) for _, gradient in arrived):
        return None
    return arrived[0]


def _arrived(context: RuleContext, node: NodeRecord) -> list[tuple[int, GradientStat]]:
    stats = [context.tensor_stat(node.index, slot) for slot in range(len(node.outputs))]
    return [(stat.order or 0, stat.gradient) for stat in stats if stat and stat.gradient]


def _broke(context: RuleContext, ref: TensorRef) -> bool:
    """Return whether a tensor's gradient is not finite although all that was given for it was."""
    if _is_finite(gradient_of(context, ref)):
        return False
    users = [context.recording.nodes[user] for user in context.users.get(ref.node, ())]
    return all(
        _is_finite(gradient)
        for user in users
        if _uses(context, user, ref)
        for _, gradient in _arrived(context, user)
    )


def _uses(context: RuleContext, user: NodeRecord, ref: TensorRef) -> bool:
    return ref in context.successors[user.index]


def _spoilt(context: RuleContext, broken: list[TensorRef]) -> tuple[int, ...]:
    """Return the parameters to which a gradient that is not finite was handed on."""
    return tuple(sorted(set(_spoilt_from(context, broken))))


def _spoilt_from(context: RuleContext, broken: list[TensorRef]) -> Iterator[int]:
    waiting, seen = list(broken), set(broken)
    while waiting:
        ref = waiting.pop()
        if _is_finite(gradient_of(context, ref)):
            continue
        parameter = context.recording.nodes[ref.node].parameter
        if parameter is not None:
            yield parameter
        onward = context.successors.get(ref.node, ())
        waiting += [following for following in onward if following not in seen]
        seen.update(onward)
