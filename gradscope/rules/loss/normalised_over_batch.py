"""GS726: embeddings whose features are normalised over the batch."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.contrasts import Contrast, contrasts
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_NORMS = ("LinalgVectorNorm", "Norm")
_BETWEEN = ("ClampMin", "Clone", "Expand", "ToCopy")


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisedOverBatch(Rule):
    """The embeddings of a contrastive loss are normalised over the batch, not over their features.

    What it finds:
        `normalize(embeddings, dim=0)` before the similarities `images @ texts.T`, where `dim=-1`
        was meant.

    Why it matters:
        The vectors have no unit length, so the products are no cosines. They depend on the other
        examples of the batch and shrink with its size.

    How it is measured:
        The logits of a cross-entropy are a square matrix of products over a batch. A factor is a
        quotient by norms, of which there is one per feature, and not one per example. There is
        no threshold.

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
        for contrast in contrasts(context):
            norms = list(_norms_over_batch(context, contrast))
            if not norms:
                continue
            norms.sort(key=partial(_line, context))
            others = [one.site for one in norms[1:] if one.site != norms[0].site]
            dims = norms[0].dims() or ()
            examples = contrast.record.left.dims[0]
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
                    context.related(contrast.record.site, "the loss"),
                ),
                evidence={"norms": dims[-1], "examples": examples, "factors": len(norms)},
            )
            return


def _line(context: RuleContext, node: NodeRecord) -> int:
    site = context.site(node.site)
    return 0 if site is None else site.line


def _norms_over_batch(context: RuleContext, contrast: Contrast) -> Iterator[NodeRecord]:
    """Yield the norms of shape `[1, features]` or `[features]` that divide the factors."""
    examples = contrast.record.left.dims[0]
    for quotient in _quotients(context, contrast.product):
        divisor = context.successors[quotient.index][1].node
        norm = _behind_views(context, divisor, _BETWEEN)
        shape, own = quotient.dims() or (), norm.dims() or ()
        if not norm.operation.startswith(_NORMS) or len(shape) != 2 or shape[0] != examples:
            continue
        if own == (1, shape[1]) or (own == shape[1:] and shape[1] != examples):
            yield norm


def _quotients(context: RuleContext, product: NodeRecord) -> Iterator[NodeRecord]:
    """Yield the factors of a matrix product that are quotients, times a temperature or not."""
    waiting = [ref.node for ref in context.successors.get(product.index, ())]
    while waiting:
        factor = _behind_views(context, waiting.pop(0))
        inputs = context.successors.get(factor.index, ())
        if factor.operation.startswith("Div") and len(inputs) == 2:
            yield factor
        elif factor.operation.startswith("Mul"):
            waiting += [ref.node for ref in inputs]


def _behind_views(
    context: RuleContext, index: int, further: tuple[str, ...] = ("Clone", "ToCopy")
) -> NodeRecord:
    node = context.recording.nodes[index]
    while node.kind == "view" or node.operation.startswith(further):
        inputs = context.successors.get(node.index, ())
        if len(inputs) != 1:
            break
        node = context.recording.nodes[inputs[0].node]
    return node
