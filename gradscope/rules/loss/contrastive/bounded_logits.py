"""GS738: classes that cannot become likely, because their logits are small cosines."""

from collections.abc import Iterator
from math import exp, isfinite, log, log1p
from typing import ClassVar, NamedTuple

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.contrasts import COPIES, NORMS, OF_NORMS
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS, is_likelihood
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_SCALING = ("Div", "Mul")
_PRODUCTS = frozenset({"BmmBackward0", "MmBackward0"})


class _Cosines(NamedTuple):
    """Cosines that are the logits of a loss."""

    softmax: NodeRecord
    product: NodeRecord
    scaled: NodeRecord | None
    """The operation that multiplies them by a number."""
    scale: float
    of_weights: bool
    """Whether they compare with weights, as those of classes, and not with other examples."""

    @property
    def classes(self) -> int:
        return (self.softmax.dims() or (1,))[-1]

    @property
    def floor(self) -> float:
        """The least loss, with the cosine of the right class at 1 and all others at -1."""
        return log1p((self.classes - 1) * exp(-2 * self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedLogits(Rule):
    """The logits of a cross-entropy are cosines of so small a scale that it cannot fall far.

    What it finds:
        Cosines that are multiplied by a temperature of 0.07 where they should be divided by it, and
        a classifier of normalised weights without a scale, `normalize(x) @ normalize(w).T`.

    Why it matters:
        Cosines lie between -1 and 1. With a scale s and C classes, the cross-entropy is never below
        log(1 + (C - 1) exp(-2 s)), however well the model does, and the gradient of each example
        keeps its size: right ones push as hard as wrong ones.

    How it is measured:
        Both factors of the product before the softmax are divided by the norms of their rows. The
        scale is the ratio of the gradient's norms before and behind it, which is exact for a
        constant. The number is the bound as a share of log(C), the loss by chance. Learned scales,
        and logits with margins, are not judged.

    How to fix it:
        Divide by the temperature, or multiply by a scale such as 16 or 64.

    When it may be wrong:
        If the loss is to push all examples alike.

    Source:
        Wang et al. 2017, "NormFace" (arXiv 1704.06369), proposition 2: the bound. There, a
        classifier of cosines without a scale does not converge.
    """

    code: ClassVar[str] = "GS738"
    name: ClassVar[str] = "bounded-logits"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_of_chance"),)
    needs: ClassVar[Needs] = (has_backward,)

    contrast: float = 0.9
    """Bound as a share of the loss by chance, 0 to 1, of cosines between examples. Closed form: a
    temperature of 1, which contrastive losses do use, gives 0.47 with 32 examples, and 0.82 with
    65,536.
    """
    weights: float = 0.3
    """The same for cosines with weights. Closed form: without a scale it is 0.29 for 6 classes, and
    0.35 for 10.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes such logits."""
        found = dict[int | None, _Cosines]()
        for record in context.recording.evidence_of(SoftmaxRecord):
            cosines = _cosines(context, context.recording.nodes[record.node])
            if cosines is not None and cosines.classes > 1:
                found.setdefault((cosines.scaled or cosines.product).site, cosines)
        for site, one in found.items():
            limit = self.weights if one.of_weights else self.contrast
            share = one.floor / log(one.classes)
            context.measured(
                self.code, "share_of_chance", share, limit, subject="cosines", site=site
            )
            if share >= limit:
                yield self._finding(context, one, share, limit)

    def _finding(self, context: RuleContext, one: _Cosines, share: float, limit: float) -> Finding:
        times = "cosines" if one.scaled is None else f"cosines times {one.scale:.3g}"
        site = (one.scaled or one.product).site
        return self.finding(
            context,
            message=(
                f"the logits are {times}: with {one.classes} classes, the loss cannot fall below "
                f"{one.floor:.3g}, and by chance it is {log(one.classes):.3g}"
            ),
            remedy=(
                "multiply by a scale such as 16"
                if one.scaled is None
                else "divide by the temperature instead of multiplying by it"
            ),
            site=site,
            related=(
                context.related(one.softmax.site, "the loss") if one.softmax.site != site else None,
            ),
            evidence={
                "scale": one.scale,
                "classes": one.classes,
                "share_of_chance": share,
                "share_limit": limit,
            },
        )


def _cosines(context: RuleContext, softmax: NodeRecord) -> _Cosines | None:
    """Return the cosines that are the input of a log-softmax of the loss; None for other input."""
    given = context.successors.get(softmax.index, ())
    if softmax.operation != "LogSoftmaxBackward0" or not given:
        return None
    logits, scaled = given[0], None
    node = context.recording.nodes[logits.node]
    while node.operation not in _PRODUCTS:
        inputs = context.successors.get(node.index, ())
        is_scale = node.operation.startswith(_SCALING)
        # A learned scale, or one for each example, is a second input.
        if len(inputs) != 1 or not (is_scale or _passes(node)):
            return None
        scaled = node if is_scale else scaled
        node = context.recording.nodes[inputs[0].node]
    factors = context.successors.get(node.index, ())
    scale = _ratio(context, TensorRef(node=node.index, slot=0), logits)
    if scale is None or not is_likelihood(context, softmax):
        return None
    divided = [_normalised(context, one.node) for one in factors]
    if len(divided) != 2 or None in divided:
        return None
    of_weights = any(one is not None and one.kind == "parameter" for one in divided)
    return _Cosines(softmax, node, scaled, scale, of_weights)


def _passes(node: NodeRecord) -> bool:
    return node.kind == "view" or node.operation in SAME_NUMBERS


def _ratio(context: RuleContext, before: TensorRef, behind: TensorRef) -> float | None:
    """Return the constant between two tensors, from their gradients."""
    stats = [context.tensor_stat(one.node, one.slot) for one in (before, behind)]
    norms = [one.gradient.norm for one in stats if one is not None and one.gradient is not None]
    if len(norms) < 2 or not all(map(isfinite, norms)) or not norms[1]:
        return None
    return norms[0] / norms[1]


def _normalised(context: RuleContext, index: int) -> NodeRecord | None:
    """Return what is divided by the norms of its rows; None for anything else."""
    quotient = context.behind_views(index, COPIES)
    inputs = context.successors.get(quotient.index, ())
    shape = quotient.dims() or ()
    if not quotient.operation.startswith("Div") or len(inputs) != 2 or len(shape) < 2:
        return None
    norm = context.behind_views(inputs[1].node, OF_NORMS)
    is_of_rows = norm.operation.startswith(NORMS) and norm.dims() in (
        (*shape[:-1], 1),
        shape[:-1],
    )
    return context.behind_views(inputs[0].node) if is_of_rows else None
