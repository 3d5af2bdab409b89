"""What a loss function is given, where views and layers hide it."""

from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import origin_of_numbers

LINEAR = frozenset({"AddmmBackward0", "LinearBackward0", "MmBackward0"})
"""Operations of a linear layer."""


def product_with_bias(context: RuleContext, total: NodeRecord) -> NodeRecord | None:
    """Return the product of a linear layer that adds its bias afterwards, None for other sums."""
    operands = context.successors.get(total.index, ())
    nodes = [context.recording.nodes[one.node] for one in operands]
    # Where the input is not contiguous, torch multiplies first and adds the bias apart.
    if len(nodes) != 2 or nodes[1].kind != "parameter" or nodes[0].module_call is None:
        return None
    product = origin_of_numbers(context, nodes[0].index)
    is_linear = product is not None and product.operation in LINEAR
    is_one_layer = product is not None and product.module_call == total.module_call
    return product if is_linear and is_one_layer else None
