"""GS726: embeddings whose features are normalised over the batch."""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.contrasts import COPIES, NORMS, OF_NORMS, contrasts
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisedOverBatch(Rule):
    """The embeddings of a contrastive loss are normalised over the batch, not over their features.

    What it finds:
        `normalize(embeddings, dim=0)` before the similarities `images @ texts.T`, or
        `cosine_similarity(one, other, dim=0)` of two batches, where `dim=-1` was meant.

    Why it matters:
        The vectors have no unit length, so the products are no cosines. They depend on the other
        examples of the batch and shrink with its size.

    How it is measured:
        The logits of a cross-entropy are a square matrix of products over a batch. A factor is a
        quotient by norms, of which there is one per feature, and not one per example. Or products
        of such quotients are summed, as in a cosine. Quotients whose mean over the batch was
        subtracted are left alone, as in a correlation. There is no threshold.

    How to fix it:
        Pass `dim=-1`.

    When it may be wrong:
        If the features are meant to be whitened by their size over the batch.

    Source:
        torch documentation, `torch.nn.functional.normalize`: `dim` is the dimension to reduce.
    """

    code: ClassVar[str] = "GS726"
    name: ClassVar[str] = "normalised-over-batch"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the first loss with such embeddings."""
        for examples, loss, norms in _losses_with_norms(context):
            # The first line of the code is named, whatever the order of the graph.
            norms.sort(key=partial(_line, context))
            others = [one.site for one in norms[1:] if one.site != norms[0].site]
            dims = norms[0].dims() or ()
            yield self.finding(
                context,
                message=(
                    f"embeddings are divided by {dims[-1]} norms of their features over the batch, "
                    f"not by {examples} norms of examples: their products are no cosines"
                ),
                remedy="normalise over the features: dim=-1",
                site=norms[0].site,
                related=(
                    *(context.related(one, "and here") for one in others),
                    context.related(loss, "the loss"),
                ),
                evidence={"norms": dims[-1], "examples": examples, "factors": len(norms)},
            )
            return


def _losses_with_norms(
    context: RuleContext,
) -> Iterator[tuple[int, int | None, list[NodeRecord]]]:
    """Yield losses whose embeddings are divided by norms over the batch.

    Each comes as the number of examples, its line (a site), and the norms.
    """
    for contrast in contrasts(context):
        examples = contrast.record.left.dims[0]
        quotients = _quotients(context, contrast.product)
        norms = [_norm_over_batch(context, q) for q in quotients if _dims(q)[:1] == (examples,)]
        if found := [norm for norm in norms if norm is not None]:
            yield examples, contrast.record.site, found
    for total in context.recording.nodes:
        product = _product_summed(context, total)
        factors = [] if product is None else _factors(context, product)
        norms = [_norm_over_batch(context, one) for one in factors]
        found = [norm for norm in norms if norm is not None]
        if product is not None and found and len(found) == len(factors):
            yield _dims(product)[0], total.site, found


def _product_summed(context: RuleContext, total: NodeRecord) -> NodeRecord | None:
    """Return the matrix of products that a node sums over its rows or columns."""
    inputs = context.successors.get(total.index, ())
    if not total.operation.startswith("Sum") or len(inputs) != 1:
        return None
    product = context.recording.nodes[inputs[0].node]
    is_matrix = product.operation.startswith("Mul") and len(_dims(product)) == 2
    return product if is_matrix and 1 < prod(_dims(total)) < prod(_dims(product)) else None


def _factors(context: RuleContext, product: NodeRecord) -> list[NodeRecord]:
    return [context.behind_views(ref.node, COPIES) for ref in context.successors[product.index]]


def _line(context: RuleContext, node: NodeRecord) -> int:
    site = context.site(node.site)
    return 0 if site is None else site.line


def _norm_over_batch(context: RuleContext, quotient: NodeRecord) -> NodeRecord | None:
    """Return the norms of the columns of a matrix that divide it.

    None for weights, and where the columns have lost their means, as in a correlation.
    """
    inputs = context.successors.get(quotient.index, ())
    shape = _dims(quotient)
    if not quotient.operation.startswith("Div") or len(inputs) != 2 or len(shape) != 2:
        return None
    divided = context.behind_views(inputs[0].node, COPIES)
    if divided.kind == "parameter" or divided.operation.startswith("Sub"):
        return None
    norm = context.behind_views(inputs[1].node, OF_NORMS)
    own = _dims(norm)
    # In a square matrix, norms without a kept dimension may be those of the rows.
    is_of_columns = own == (1, shape[1]) or (own == shape[1:] and shape[1] != shape[0])
    return norm if norm.operation.startswith(NORMS) and is_of_columns else None


def _quotients(context: RuleContext, product: NodeRecord) -> Iterator[NodeRecord]:
    """Yield the factors of a matrix product that are quotients, times a temperature or not."""
    waiting = context.inputs(product.index)
    while waiting:
        factor = context.behind_views(waiting.pop(0), COPIES)
        inputs = context.successors.get(factor.index, ())
        if factor.operation.startswith("Div") and len(inputs) == 2:
            yield factor
        elif factor.operation.startswith("Mul"):
            waiting += [ref.node for ref in inputs]


def _dims(node: NodeRecord) -> tuple[int, ...]:
    return node.dims() or ()
