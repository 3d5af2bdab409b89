"""Kinds of dead ends: how sure it is that a gradient of zero stays, and what it costs."""

from gradscope.analysis.reach import Reach
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.outputs import (
    feeds_loss,
    is_margin,
    normalises_alone,
    normalises_one_feature,
    weighs_positions,
)
from gradscope.rules.helpers.zeros.dead_ends import DeadEnd
from gradscope.rules.helpers.zeros.phrasing import (
    CUTTING,
    FLOORS,
    ROUTING,
    WHATEVER_VALUES,
    twice_differentiated,
)


def lasts(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether parameters learned earlier in a run, and get zeros from here to its end."""
    return context.run is not None and context.run.ceased.issuperset(end.parameters)


def is_always_one(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether a softmax over a layer's only output predicts, or weighs positions."""
    return (
        end.is_over_one_element
        and normalises_one_feature(context, end.node)
        and (feeds_loss(context, end.node) or weighs_alone(context, end))
    )


def weighs_alone(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether a softmax over one element weighs positions of another dimension."""
    return end.is_over_one_element and weighs_positions(context, end.node)


def is_flat_output(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether an operation makes a prediction that no value of its input changes."""
    return (
        not end.zeros
        and not end.underflows
        and not end.is_over_one_element
        and not twice_differentiated(end)
        and end.node.operation.startswith((*CUTTING, *WHATEVER_VALUES))
        and feeds_loss(context, end.node)
        and not is_margin(context, end.node)
    )


def is_settled(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether no batch gives a gradient: the operation does not depend on the data.

    So it is for a softmax over the single best of several, for a normalisation of single elements,
    and for a clamp of a parameter itself.
    """
    if end.node.index in normalises_alone(context):
        return True
    inputs = [context.recording.nodes[one.node] for one in context.successors[end.node.index]]
    if end.is_over_one_element:
        return any(one.operation == "TopkBackward0" for one in inputs)
    is_clamp = end.node.operation.startswith("Clamp")
    return is_clamp and any(one.parameter in end.parameters for one in inputs)


def starts_at_zero(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether trained factors of one product start at zero, which no batch changes."""
    records = [context.recording.parameters[zero] for zero in end.zeros]
    return bool(records) and all(record.requires_grad for record in records)


def learns(context: RuleContext) -> bool:
    """Return whether any parameter gets more than zeros in any step."""
    return any(stat.reach == "gradient" for stat in context.recording.parameter_stats)


def is_left_out(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether modules built alike learn, as experts that were chosen do."""
    reach = context.shared(Reach)
    learning = reach.learning - set(end.parameters)
    return (
        not end.zeros
        and end.node.operation.startswith(ROUTING)
        and all(
            next(reach.subtrees.twins(part, learning), None) is not None
            for part in reach.subtrees.parts(end.parameters)
        )
    )


def is_satisfied(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether the loss is zero because a margin is kept, or by training."""
    step = context.first.step
    if step is None or step.loss != 0:
        return False
    has_learned = context.run is not None and context.run.learning.issuperset(end.parameters)
    return has_learned or end.node.operation.startswith(FLOORS)


def never_learns(context: RuleContext) -> bool:
    """Return whether no parameter gets more than zeros in any step of a run of several."""
    run = context.run
    return run is not None and len(context.probes) > 1 and not run.learning
