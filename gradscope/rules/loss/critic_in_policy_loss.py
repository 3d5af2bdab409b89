"""GS705: a policy's loss that trains the critic through the advantage."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import path_cuts
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS, SUMS, is_averaged_into_loss
from gradscope.rules.helpers.loss.signed_terms import scale_of
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_LOGARITHMS = frozenset(
    {
        "BinaryCrossEntropyWithLogitsBackward0",
        "LogBackward0",
        "LogSigmoidBackward0",
        "LogSoftmaxBackward0",
        "LogsumexpBackward0",
        "NllLossBackward0",
    }
)

_OF_LIKELIHOODS = frozenset(
    {
        "ClampBackward1",
        "DivBackward0",
        "ExpBackward0",
        "MeanBackward0",
        "MeanBackward1",
        "MulBackward0",
        "NegBackward0",
        "PowBackward0",
        "StackBackward0",
        "SumBackward0",
        "SumBackward1",
    }
)
"""Operations between the product and the logarithm of a likelihood."""

_OF_ADVANTAGES = frozenset(
    {"CatBackward0", "FlipBackward0", "MulBackward0", "NegBackward0"}
    | {"StackBackward0", "SumBackward0", "SumBackward1"}
)
"""Linear operations between the product and the estimate of a critic."""

_LAYERS = frozenset({"AddmmBackward0", "LinearBackward0", "MmBackward0", "MvBackward0"})
_PRODUCTS = frozenset({"DotBackward0", "MulBackward0"})
_DIGITS = 1e-5
"""Relative difference of two factors that are equal but for rounding."""
_SHIFTED = SUMS | SAME_NUMBERS | {"NegBackward0"}
"""Operations on one tensor after which it is still the same up to its sign and a constant."""


@dataclass(frozen=True, slots=True)
class _LearnedWeight:
    """A number that learns, and two products of one tensor with it: in one it is detached."""

    parameter: int
    product: NodeRecord
    """The product that trains both factors."""
    constant: int | None
    """Line (a site) that makes it a constant in the other product."""
    weighed: tuple[int, ...]
    """Parameters behind the tensor that it weighs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticInPolicyLoss(Rule):
    """The policy's loss also trains the critic, through an advantage that is not detached.

    What it finds:
        A loss `log_prob * advantage` whose advantage was computed from the output of a critic, with
        its gradient. Also the loss of a learned weight, such as the temperature of an entropy, that
        trains the policy, too: `alpha * (log_prob + target)` beside `alpha.detach() * log_prob`.

    Why it matters:
        The loss gets lower where the critic errs in the policy's favour. The critic moves away from
        the returns that it should estimate, and the policy follows the critic. The loss of a weight
        has the opposite sign of the term that it weighs: the two cancel, and the policy loses its
        entropy.

    How it is measured:
        The rule looks for a product among the loss's own operations. One factor is a
        log-likelihood, or the ratio of two. The other is linear in the output of a layer, plus or
        minus numbers without a gradient, such as a return. Some of the layer's parameters do not
        affect the first factor, and the step trains them. A learned weight is a parameter of one
        element. One product in the loss detaches it, or has a constant of its value other than 1.
        Another one multiplies the same tensor, up to a constant, by what was computed from the
        weight alone: a warning. Nothing is compared with a threshold.

    How to fix it:
        `advantage = (returns - values).detach()`. The critic learns from a loss of its own.

    When it may be wrong:
        If a weight that is linear in a layer's output, with an offset, should be learned together
        with the likelihood that it multiplies.

    Source:
        Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783):
        the advantage is no function of the policy's loss. Sutton and Barto 2018, "Reinforcement
        Learning", chapter 13.
        Measured: 6 of 6 such losses of the tests, and none of 9 healthy ones with a product of two
        factors that have gradients.
    """

    code: ClassVar[str] = "GS705"
    name: ClassVar[str] = "critic-in-policy-loss"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that computes such an advantage."""
        found: dict[int | None, tuple[NodeRecord, NodeRecord, set[int]]] = {}
        for product in context.first.nodes:
            for advantage, critic in _advantages(context, product):
                _, _, parameters = found.setdefault(
                    advantage.site, (advantage, product, set[int]())
                )
                parameters |= critic
        for advantage, product, parameters in found.values():
            yield self._finding(context, advantage, product, tuple(sorted(parameters)))
        weights = _entangled_weights(context, _wanted(context))
        for weight in {one.product.site: one for one in weights}.values():
            yield self._of_weight(context, weight)

    def _of_weight(self, context: RuleContext, weight: _LearnedWeight) -> Finding:
        name = context.recording.parameters[weight.parameter].name
        return self.finding(
            context,
            message=(
                f"the loss of the weight {name} trains what it weighs, too: the product carries "
                f"the gradient of {len(weight.weighed)} other parameters"
            ),
            remedy="detach() the other factor: this loss is to train the weight alone",
            site=weight.product.site,
            related=(context.related(weight.constant, "the weight is a constant here"),),
            severity="warning",
            parameters=weight.weighed,
            evidence={"parameters_weighed": len(weight.weighed)},
            count=len(weight.weighed),
        )

    def _finding(
        self,
        context: RuleContext,
        advantage: NodeRecord,
        product: NodeRecord,
        parameters: tuple[int, ...],
    ) -> Finding:
        return self.finding(
            context,
            message=(
                "the policy's loss trains the critic, too: the advantage carries the gradient "
                f"of {len(parameters)} of its parameters"
            ),
            remedy="detach() the advantage; the critic learns from its own loss",
            site=advantage.site,
            related=(
                context.related(product.site, "it multiplies a log-likelihood here")
                if product.site != advantage.site
                else None,
            ),
            parameters=parameters,
            evidence={"parameters_of_critic": len(parameters)},
            count=len(parameters),
        )


def _wanted(context: RuleContext) -> frozenset[int]:
    return context.shared(Reach).learning if context.run is None else context.run.stepped


def _advantages(
    context: RuleContext, product: NodeRecord
) -> Iterator[tuple[NodeRecord, frozenset[int]]]:
    """Yield the difference and the critic's parameters, if a product is a policy's loss."""
    factors = context.inputs(product.index)
    if product.operation not in _PRODUCTS or len(factors) != 2:
        return
    wanted = _wanted(context)
    # Products commute: either factor may be the likelihood.
    for likelihood, weight in (factors, factors[::-1]):
        difference = _difference(context, weight)
        if difference is None or not _is_likelihood(context, likelihood):
            continue
        critic = context.parameters_behind([weight]) - context.parameters_behind([likelihood])
        if critic & wanted and is_averaged_into_loss(context, product.index):
            yield difference, critic & wanted


def _difference(context: RuleContext, weight: int) -> NodeRecord | None:
    """Return the sum with a number from outside, if a tensor is linear in a layer's output."""
    waiting, seen, found = [weight], {weight}, None
    reaches_layer = False
    while waiting:
        node = context.recording.nodes[waiting.pop(0)]
        inputs = context.inputs(node.index)
        if node.operation in _LAYERS:
            reaches_layer = True
            continue
        if node.operation in SUMS:
            # The sum that is nearest to the product, of an estimate and something without an edge,
            # such as a return.
            found = node if found is None and len(inputs) == 1 else found
        elif node.operation.startswith("MeanBackward"):
            continue  # part of a normalisation
        elif node.operation == "DivBackward0":
            # Only what is divided enters linearly.
            inputs = inputs[:1]
        elif not (node.kind == "view" or node.operation in _OF_ADVANTAGES | SAME_NUMBERS):
            return None
        waiting += [one for one in inputs if one not in seen]
        seen.update(inputs)
    return found if reaches_layer else None


def _is_likelihood(context: RuleContext, node: int) -> bool:
    """Return whether a tensor is a log-likelihood, or was made from one."""
    waiting, seen = [node], {node}
    while waiting:
        record = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(record.index)
        if record.operation in _LOGARITHMS or _is_squared_distance(context, record):
            return True
        is_passed = record.operation in _OF_LIKELIHOODS | SUMS | SAME_NUMBERS
        if record.kind == "view" or is_passed:
            waiting += [one for one in inputs if one not in seen]
            seen.update(inputs)
    return False


def _is_squared_distance(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a tensor is the square of a distance to data, as in a normal density."""
    inputs = context.inputs(node.index)
    if node.operation != "PowBackward0" or len(inputs) != 1:
        return False
    inner = context.recording.nodes[inputs[0]]
    return inner.operation in SUMS and len(context.successors.get(inner.index, ())) == 1


def _entangled_weights(context: RuleContext, wanted: frozenset[int]) -> Iterator[_LearnedWeight]:
    """Yield the weights that have a loss of their own which trains what they weigh, too.

    The weight is detached where it weighs a tensor, so its own loss is to train the weight alone.
    A weight that was detached before this forward is known by its value.

    Args:
        context: A backward.
        wanted: Parameters that its steps update.
    """
    for weight, product, tensor in _weighed(context):
        behind = context.parameters_behind([tensor]) & wanted
        (parameter,) = context.parameters_behind([weight])
        # A weight that what it weighs depends on is a part of the network.
        if not behind or parameter in behind:
            continue
        cut = _cut(context, parameter, tensor)
        if cut is not None:
            yield _LearnedWeight(parameter, product, cut.site, tuple(sorted(behind)))
            continue
        copy = _product_by_value(context, weight, tensor)
        if copy is not None:
            yield _LearnedWeight(parameter, product, copy.site, tuple(sorted(behind)))


def _weighed(context: RuleContext) -> Iterator[tuple[int, NodeRecord, int]]:
    """Yield each weight that is made of one learned number, the product, and what it weighs."""
    for product in context.first.nodes:
        factors = _factors(context, product)
        for weight, tensor in (factors, factors[::-1]) if len(factors) == 2 else ():
            behind = context.parameters_behind([weight])
            if len(behind) == 1 and all(_is_number(context, one) for one in behind):
                yield weight, product, tensor


def _cut(context: RuleContext, parameter: int, tensor: int) -> PathCutRecord | None:
    """Return the call that detaches a weight in another product of a tensor."""
    for cut, parameters in path_cuts(context):
        if cut.kind == "detach" and tuple(parameters) == (parameter,):
            products = (context.recording.nodes[join] for join in cut.joins)
            if any(tensor in _factors(context, one) for one in products):
                return cut
    return None


def _product_by_value(context: RuleContext, weight: int, tensor: int) -> NodeRecord | None:
    """Return a product of a tensor with a constant that has the value of its learned weight."""
    stats = context.shared(forward_stats)
    value = stats.get(TensorRef(node=weight, slot=0))
    if value is None or value.numel != 1 or math.isclose(value.norm, 1, rel_tol=_DIGITS):
        return None  # a factor of 1 may be anything
    for product in context.first.nodes:
        if _factors(context, product) == [tensor]:
            factor = scale_of(context, product)
            if factor is not None and math.isclose(factor, value.norm, rel_tol=_DIGITS):
                return product
    return None


def _is_number(context: RuleContext, parameter: int) -> bool:
    return all(size == 1 for size in context.recording.parameters[parameter].shape.dims)


def _factors(context: RuleContext, product: NodeRecord) -> list[int]:
    """Return the factors with a gradient of a product in the loss, without added constants."""
    if product.operation not in _PRODUCTS or not is_averaged_into_loss(context, product.index):
        return []
    return [_inner(context, ref.node) for ref in context.successors.get(product.index, ())]


def _inner(context: RuleContext, node: int) -> int:
    while True:
        record = context.recording.nodes[node]
        inputs = context.successors.get(node, ())
        if len(inputs) != 1 or not (record.kind == "view" or record.operation in _SHIFTED):
            return node
        node = inputs[0].node
