"""GS119: numbers added to an embedding that are far larger than it."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, has_forward_values
from gradscope.rules.rule import Rule

_SUMS = ("AddBackward0", "SubBackward0")
_ON_THE_WAY = frozenset(
    {"CloneBackward0", "ExpandBackward0", "MulBackward0", "NativeDropoutBackward0"}
    | {"PermuteBackward0", "SqueezeBackward1", "TransposeBackward0", "UnsqueezeBackward0"}
)
"""Operations between an embedding and the sum: scaling, dropout and views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingDrowned(Rule):
    """Constant numbers are added to an embedding that are far larger than it.

    What it finds:
        Sums of an embedding and a tensor without a gradient, such as position indices, timestamps
        or prices as they are, that are a hundred times as large as the embedding.

    Why it matters:
        What follows hardly sees which row of the embedding was chosen. After a normalisation the
        rows differ by less than a hundredth, and so do their gradients.

    How it is measured:
        The rule compares the root mean square of the sum's values with that of the embedding. The
        limit is `ratio`. The range of the values must grow at least `spread` times too: a number
        that is the same everywhere takes nothing away. Sums that no layer with parameters uses,
        such as scores with a mask, are not judged.

    How to fix it:
        Embed the numbers (`nn.Embedding` for positions, a sinusoidal encoding for times), or scale
        them to the size of the embedding.

    When it may be wrong:
        If the added numbers matter more than the rows.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.4: embeddings are multiplied by
        the root of their size before positions are added.
        Measured: sinusoidal positions of size 0.7 on embeddings of size 0.02, which train, have a
        ratio of 35; 200 position indices on embeddings of size 1 have 115.
    """

    code: ClassVar[str] = "GS119"
    name: ClassVar[str] = "embedding-drowned"
    level: ClassVar[Severity] = "warning"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="ratio"),)
    needs: ClassVar[Needs] = (has_forward_values,)

    ratio: float = 100.0
    """Size of the sum over that of the embedding, as root mean squares. Measured: healthy models
    reach 35.
    """
    spread: float = 10.0
    """Range of the sum over that of the embedding. Chosen: a tenth of `ratio`, as the range of a
    normal distribution is several times its root mean square.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every sum that drowns an embedding."""
        stats = {one.tensor: one for one in context.recording.evidence_of(ForwardStat)}
        for node in context.first.nodes:
            operand = _embedding(context, node)
            whole, part = stats.get(_of(node)), stats.get(operand) if operand else None
            if whole is None or part is None or not 0 < part.rms < math.inf:
                continue
            ratio = whole.rms / part.rms
            if not math.isfinite(ratio) or not _is_used_by_layers(context, node):
                continue
            context.measured(
                self.code, "ratio", ratio, self.ratio, subject=node.operation, site=node.site
            )
            widens = whole.maximum - whole.minimum >= self.spread * (part.maximum - part.minimum)
            if ratio >= self.ratio and widens:
                yield self._finding(context, node, ratio)

    def _finding(self, context: RuleContext, node: NodeRecord, ratio: float) -> Finding:
        return self.finding(
            context,
            message=(
                f"constant numbers {short(ratio, 2)} times as large as the embedding are added to "
                "it: what follows hardly sees which row was chosen"
            ),
            remedy="embed these numbers too, or scale them to the size of the embedding",
            site=node.site,
            evidence={"ratio": ratio, "ratio_limit": self.ratio},
        )


def _of(node: NodeRecord) -> TensorRef:
    return TensorRef(node=node.index, slot=0)


def _embedding(context: RuleContext, node: NodeRecord) -> TensorRef | None:
    """Return the embedding to which a sum adds a constant tensor; None if it is no such sum."""
    refs = context.successors.get(node.index, ())
    # Constants have no edge. Learned positions would be a second operand.
    if node.operation not in _SUMS or len(refs) != 1:
        return None
    measured = below = context.recording.nodes[refs[0].node]
    while below.operation in _ON_THE_WAY or below.kind == "view":
        inputs = context.successors.get(below.index, ())
        if len(inputs) != 1:
            return None
        below = context.recording.nodes[inputs[0].node]
        # The values of views are not measured: the operation below has the same numbers.
        measured = below if measured.kind == "view" else measured
    return _of(measured) if below.operation == "EmbeddingBackward0" else None


def _is_used_by_layers(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether any operation between a sum and the loss takes parameters."""
    waiting, seen = [node.index], {node.index}
    while waiting:
        for user in set(context.users.get(waiting.pop(), ())) - seen:
            refs = context.successors.get(user, ())
            if any(context.recording.nodes[ref.node].parameter is not None for ref in refs):
                return True
            seen.add(user)
            waiting.append(user)
    return False
