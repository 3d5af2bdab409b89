"""GS120: weights of attention that are normalised over the queries."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_PASSING = ("Clone", "Expand", "NativeDropout", "ToCopy")
_RESHAPING = ("ReshapeAlias", "Squeeze", "UnsafeView", "Unsqueeze", "View")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOverQueries(Rule):
    """A softmax normalises the weights of attention over the queries, not over the keys.

    What it finds:
        `scores.softmax(dim=-2) @ values`, or another number of that dimension, where `dim=-1` was
        meant.

    Why it matters:
        The weights of a query do not add up to 1, so its output is no average of the values. With a
        causal mask the last queries get nearly everything, and the first ones nearly nothing. And
        each query depends on all others, through the sum that divides its weights.

    How it is measured:
        A softmax over the last dimension but one of three or more, whose result is multiplied from
        the left with a matrix for each example. Both dimensions have more than one element. A
        transposition in between, or a division that normalises again, is left alone. There is no
        threshold.

    How to fix it:
        Pass `dim=-1`.

    When it may be wrong:
        If queries should compete for keys, as in slot attention; its weights are divided by their
        sum over the keys afterwards.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need" (arXiv 1706.03762), section 3.2.1.
        Locatello et al. 2020, "Object-Centric Learning with Slot Attention" (arXiv 2006.15055),
        section 2.1.
    """

    code: ClassVar[str] = "GS120"
    name: ClassVar[str] = "attention-over-queries"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a softmax."""
        found: dict[int | None, list[tuple[NodeRecord, int]]] = {}
        for record in context.recording.evidence_of(SoftmaxRecord):
            softmax = context.recording.nodes[record.node]
            dims = softmax.dims() or ()
            if len(dims) < 3 or record.dimension != len(dims) - 2 or min(dims[-2:]) < 2:
                continue
            for product in _products(context, softmax):
                found.setdefault(softmax.site, []).append((softmax, product))
        for site, pairs in found.items():
            softmax, product = pairs[0]
            queries, keys = (softmax.dims() or ())[-2:]
            yield self.finding(
                context,
                message=(
                    f"the weights are normalised over the {queries} queries, not over the {keys} "
                    "keys: those of a query do not add up to 1"
                ),
                remedy="normalise over the keys: dim=-1",
                site=site,
                related=(context.related(product, "the values are multiplied here"),),
                evidence={"queries": queries, "keys": keys, "softmaxes": len(pairs)},
                count=len(pairs),
            )


def _products(context: RuleContext, softmax: NodeRecord) -> Iterator[int]:
    """Yield the lines of products of matrices of which a softmax is the left factor."""
    last = (softmax.dims() or ())[-2:]
    waiting = [softmax]
    while waiting:
        node = waiting.pop()
        for user in (context.recording.nodes[one] for one in context.users.get(node.index, ())):
            inputs = context.successors[user.index]
            is_same = (user.dims() or ())[-2:] == last
            if user.operation.startswith("Bmm"):
                is_left = len(inputs) == 2 and inputs[0].node == node.index
                if is_left and user.site is not None:
                    yield user.site
            elif user.operation.startswith((*_PASSING, *_RESHAPING)) and is_same:
                waiting.append(user)
            elif user.operation.startswith("Mul") and len(inputs) == 1 and is_same:
                waiting.append(user)  # dropout by hand, or a mask
