"""Contrastive losses: cross-entropies over the similarities of all pairs of a batch."""

from collections.abc import Iterator
from typing import NamedTuple

from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext

# Two by two may be a classifier of two classes.
_LEAST_EXAMPLES = 3
_SCALED = ("Clone", "Div", "Mul", "ToCopy")
"""Operations that give similarities a temperature."""


COPIES = ("Clone", "ToCopy")
NORMS = ("LinalgVectorNorm", "Norm")
OF_NORMS = ("ClampMin", "Clone", "Expand", "ToCopy")
"""Operations between the norms of vectors and the division by them."""


class Contrast(NamedTuple):
    """A cross-entropy whose logits are a square matrix of products."""

    record: ComparisonRecord
    product: NodeRecord
    """The matrix product of two groups of embeddings."""


def contrasts(context: RuleContext) -> Iterator[Contrast]:
    """Yield such losses, in order."""
    for record in context.recording.evidence_of(ComparisonRecord):
        dims = record.left.dims
        is_square = len(dims) == 2 and dims[0] == dims[1] >= _LEAST_EXAMPLES
        if record.operation != "cross_entropy" or not is_square or record.left_tensor is None:
            continue
        for product in _products(context, record.left_tensor.node):
            yield Contrast(record, product)
            # One product is enough to know the pairs.
            break


def _products(context: RuleContext, node: int) -> Iterator[NodeRecord]:
    """Yield the products of two embeddings with a gradient that logits are multiples of."""
    waiting, seen = [node], {node}
    while waiting:
        record = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(record.index)
        if record.operation == "MmBackward0" and len(inputs) == 2:
            if not any(_is_weight(context, one) for one in inputs):
                yield record
        elif record.kind == "view" or record.operation.startswith(_SCALED):
            waiting += [one for one in inputs if one not in seen]
            seen.update(inputs)


def _is_weight(context: RuleContext, node: int) -> bool:
    """Return whether a factor is a parameter, as that of a classifier of as many classes."""
    return context.behind_views(node).kind in ("leaf", "parameter")
