"""GS716 and GS736: probabilities without their logarithm, and ratios that are always 1."""

from collections.abc import Iterator
from math import prod
from typing import ClassVar, NamedTuple

from gradscope.analysis.reach import Reach
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import UnitRatioEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import nodes_beside
from gradscope.rules.helpers.loss.policy_terms import weighed_probabilities
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_backward, has_forward_values, has_step
from gradscope.rules.rule import Lasting, Rule

_PICKING = ("DiagonalBackward", "GatherBackward", "IndexBackward")
_PASSED = frozenset(
    {
        "DiagonalBackward0",
        "DiagonalBackward0_copy",
        "GatherBackward0",
        "IndexBackward0",
        "MeanBackward0",
        "NegBackward0",
        "SumBackward0",
        "ToCopyBackward0",
    }
)
"""Operations of one input between a picked probability and the loss."""
_SCALED = frozenset({"DivBackward0", "MulBackward0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityAsLikelihood(Rule):
    """A loss raises the probability of the right or the chosen one, and not its logarithm.

    What it finds:
        A loss such as `-(probs.gather(1, actions) * returns).mean()`, where `actions` were drawn
        from the policy and the logarithm of their probabilities is missing. Also a cross-entropy or
        a contrastive loss by hand without its logarithm, such as `-probs.gather(1, labels).mean()`
        or `-(positive / similarities.exp().sum(1)).mean()`.

    Why it matters:
        The policy gradient has one factor of the probability too many: it nearly ignores good
        actions that are rare, and makes frequent ones more frequent. Nothing fails, and the policy
        settles on what it did at first. Likewise, the cross-entropy hardly learns from what the
        model gets wrong.

    How it is measured:
        In the graph, a product in the loss's sum of picked elements of one softmax and of a factor
        without a gradient, which the source names as a reward, a return or an advantage, as GS720
        does. Only views and a minus lie between. A factor that is divided, or that is named as a
        weight or a propensity, may correct for the draw, and is left alone. So is a softmax of
        which several elements are weighed by several products: that may be the expectation.

        Or a softmax, or exponentials over their sum, of which one element per row is picked, by
        class or from the diagonal, and the loss is nothing but the negative mean or sum. The
        logits have no other way to the loss, and a trained layer makes them. `1 - p` is the mean
        absolute error of the probabilities, which is robust against wrong labels, and is left
        alone; so is a sum over several elements of a row.

    How to fix it:
        `-(dist.log_prob(action) * returns).mean()`, or `torch.log` of the probabilities.

    When it may be wrong:
        If the actions are not drawn from the policy, but chosen evenly. If the expected number of
        right answers is meant to grow.

    Source:
        Williams 1992, "Simple Statistical Gradient-Following Algorithms"; Sutton and Barto 2018,
        "Reinforcement Learning", section 13.3.
    """

    code: ClassVar[str] = "GS736"
    name: ClassVar[str] = "probability-as-likelihood"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward, has_forward_values)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that weighs a probability by a reward."""
        learning = context.shared(Reach).learning if context.run is None else context.run.stepped
        terms = {
            term.product.site: (term, softmax)
            for term, softmax in weighed_probabilities(context)
            if context.parameters_behind([softmax.index]) & learning
        }
        for term, softmax in terms.values():
            yield self.finding(
                context,
                message=(
                    f"the policy loss weighs the probability of an action by `{term.reward}`: its "
                    "logarithm is missing"
                ),
                remedy="take the logarithm: -(log_prob * reward).mean()",
                site=term.product.site,
                related=(
                    context.related(softmax.site, "the probabilities")
                    if softmax.site != term.product.site
                    else None,
                ),
                evidence={"products": len(terms)},
            )
        yield from self._of_means(context, learning)

    def _of_means(self, context: RuleContext, learning: frozenset[int]) -> Iterator[Finding]:
        """Yield a finding for every line that divides what the loss raises as it is."""
        found = [one for one in _raised(context) if _is_learned(context, one.share, learning)]
        beside = nodes_beside(context, {one.share.index for one in found}) if found else set()
        alone = [one for one in found if beside.isdisjoint(_logits(context, one.share))]
        for one in {raised.mean.site: raised for raised in alone}.values():
            yield self.finding(
                context,
                message="the loss raises the mean probability of the right one: its logarithm is "
                "missing",
                remedy="take the logarithm before the mean, or use `cross_entropy` of the logits",
                site=one.mean.site,
                related=(
                    context.related(one.share.site, "the probabilities")
                    if one.share.site != one.mean.site
                    else None,
                ),
                evidence={"products": len(alone)},
            )


class _Raised(NamedTuple):
    """Probabilities of which picked ones are to grow, and their mean or sum."""

    share: NodeRecord
    mean: NodeRecord


class _Way(NamedTuple):
    """An operation between the loss and its probabilities."""

    node: NodeRecord
    sign: int = 1
    mean: NodeRecord | None = None
    pick: NodeRecord | None = None


def _raised(context: RuleContext) -> Iterator[_Raised]:
    """Yield the softmaxes of which picked elements, and nothing but them, are to grow."""
    waiting = [_Way(node) for node in context.first.nodes if node.depth == 0]
    while waiting:
        way = waiting.pop()
        node = way.node
        inputs = [context.recording.nodes[one] for one in context.inputs(node.index)]
        if way.sign < 0 and way.mean is not None and _is_share(context, node, way.pick):
            yield _Raised(node, way.mean)
        elif node.operation in ("AddBackward0", "StackBackward0"):
            waiting += [way._replace(node=one) for one in inputs]
        elif len(inputs) == 1 and (sign := _sign(context, node, inputs[0])):
            is_mean = node.operation.startswith(("Mean", "Sum"))
            is_pick = node.operation.startswith(_PICKING)
            mean, pick = node if is_mean else way.mean, node if is_pick else way.pick
            waiting.append(_Way(inputs[0], way.sign * sign, mean, pick))


def _sign(context: RuleContext, node: NodeRecord, given: NodeRecord) -> int:
    """Return the sign of the factor that an operation gives all its elements; 0 without one."""
    if node.operation == "NegBackward0":
        return -1
    if node.kind == "view" or node.operation in _PASSED:
        return 1
    stats = context.shared(forward_stats)
    made, known = (stats.get(TensorRef(node=one.index, slot=0)) for one in (node, given))
    if made is None or known is None or node.operation not in _SCALED or known.numel != 1:
        return 0
    return 1 if made.minimum * known.minimum > 0 else -1


def _is_share(context: RuleContext, node: NodeRecord, pick: NodeRecord | None) -> bool:
    """Return whether a node is a softmax of which an element per row was picked.

    Or the quotient of a picked exponential and a sum of such.
    """
    if node.operation == "SoftmaxBackward0":
        return pick is not None and _is_one_per_row(node, pick)
    inputs = context.inputs(node.index)
    if node.operation != "DivBackward0" or len(inputs) != 2:
        return False
    above = context.behind_views(inputs[0], _PICKING)
    below = context.recording.nodes[inputs[1]]
    if above.operation != "ExpBackward0":
        return False
    waiting, is_sum = [below], False
    while waiting:
        one = waiting.pop()
        is_sum |= one.operation.startswith("SumBackward")
        if one.operation == "ExpBackward0":
            return is_sum
        if one.kind == "view" or one.operation.startswith(("AddBackward", "SumBackward", "Mul")):
            waiting += [context.recording.nodes[one] for one in context.inputs(one.index)]
    return False


def _is_one_per_row(softmax: NodeRecord, pick: NodeRecord) -> bool:
    every, picked = softmax.dims(), pick.dims()
    return bool(every and picked is not None and prod(picked) * every[-1] <= prod(every))


def _logits(context: RuleContext, share: NodeRecord) -> Iterator[int]:
    """Yield the operations that made the logits of a softmax, or of its exponentials."""
    for given in context.inputs(share.index):
        yield context.behind_views(given, (*_PICKING, "Exp", "Sum")).index


def _is_learned(context: RuleContext, share: NodeRecord, learning: frozenset[int]) -> bool:
    """Return whether a layer that is trained made the logits, and no frozen one judges it."""
    recording = context.recording
    trained = {recording.parameters[one].module for one in learning}
    frozen = {one.module for one in recording.parameters} - trained
    for node in context.behind([share.index]):
        if node.parameter is not None:
            return node.parameter in learning
        if node.module_call is not None and recording.calls[node.module_call].module in frozen:
            return False
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAlwaysOne(Rule):
    """The ratio of new and old probabilities is always 1, although the same data train again.

    What it finds:
        A loss of PPO whose old log-probabilities are computed again before each step, and so are
        those of the current policy.

    Why it matters:
        The clip of the ratio never acts: nothing holds the policy near the one that has made the
        data. Repeated steps on the same data move it as far as they like, and training becomes
        unstable.

    How it is measured:
        In captured steps, the exponential of a difference is 1 in each element. What is subtracted
        was computed without gradient, and not detached from the other. The exponential is clamped,
        and multiplied by a tensor such as the advantages, of at least eight different numbers. In
        two steps at least half of these numbers are those of earlier captured steps: the same data
        train again. Of numbers that are normalised in each step, those before count, if nearly all
        of them differ. No captured step has another ratio at this line. Steps that train on new
        data each have a ratio of 1 for good reason.

    How to fix it:
        Store the log-probabilities when the data are made, and use these in all epochs.

    When it may be wrong:
        If another optimizer makes the steps in between and the policy does not move.

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347), section
        3: the old parameters are those before the update.
    """

    code: ClassVar[str] = "GS716"
    name: ClassVar[str] = "ratio-always-one"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_step,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a ratio."""
        for event in only(UnitRatioEvent, context.shared(Windows).events):
            yield self.finding(
                context,
                message=(
                    "the ratio of new and old probabilities is 1 in every captured step, although "
                    f"{event.reuses} of them train on data of an earlier one: the old ones are of "
                    "the current policy, and a clip of the ratio never acts"
                ),
                remedy="store the log-probabilities when the data are made, and use them in all "
                "epochs",
                site=event.site,
                evidence={"ratios": event.elements, "steps_on_known_data": event.reuses},
                count=event.elements,
                step=event.step,
            )
