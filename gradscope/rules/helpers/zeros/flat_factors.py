"""Factors of a product that an activation makes zero for every input."""

from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.evidence.parameters import InitialisationRecord
from gradscope.recording.records import NodeRecord, Site, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_inputs, forward_stats

_PRODUCTS = ("Mul", "Mm", "Bmm")
_CUTTING = ("Relu", "Threshold", "Clamp", "Hard")
"""Prefixes of activations that are constant beyond a limit."""


def flattening_activations(context: RuleContext, product: NodeRecord) -> tuple[NodeRecord, ...]:
    """Return the activations whose constant output makes a factor of a product zero.

    Everything between such an activation and the factor is constant too, such as
    `1 - exp(-density * gap)` of a density of zeros. Empty for anything but a product, and if the
    values of the forward were not recorded.
    """
    if not product.operation.startswith(_PRODUCTS):
        return ()
    stats = context.shared(forward_stats)
    factors = forward_inputs(context, product.index)
    waiting = [ref for ref in factors if ref in stats and stats[ref].zeros == stats[ref].numel]
    found, seen = dict[int, NodeRecord](), set(waiting)
    while waiting:
        ref = waiting.pop()
        node = context.recording.nodes[ref.node]
        inputs = forward_inputs(context, ref.node)
        constant = [one for one in inputs if _is_constant(stats, one)]
        # An activation of a constant is not what makes it constant.
        if node.operation.startswith(_CUTTING) and not constant:
            found[node.index] = node
        waiting += [one for one in constant if one not in seen]
        seen.update(constant)
    return tuple(found.values())


def filled_bias(context: RuleContext, activation: NodeRecord) -> Site | None:
    """Return the line that fills the bias of the layer before an activation with one number."""
    records = context.recording.evidence_of(InitialisationRecord)
    filled = {one.parameter: one.site for one in records if one.function == "constant_"}
    for layer in forward_inputs(context, activation.index):
        for ref in context.successors.get(layer.node, ()):
            parameter = context.recording.nodes[ref.node].parameter
            if parameter is None or parameter not in filled:
                continue
            stat = context.parameter_stat(parameter)
            is_bias = len(context.recording.parameters[parameter].shape.dims) == 1
            # A bias of zeros is usual, and pushes no unit below zero.
            if is_bias and stat is not None and stat.weight_norm:
                return context.site(filled[parameter])
    return None


def _is_constant(stats: dict[TensorRef, ForwardStat], ref: TensorRef) -> bool:
    stat = stats.get(ref)
    # A single number shows no spread.
    return stat is not None and stat.numel > 1 and stat.minimum == stat.maximum
