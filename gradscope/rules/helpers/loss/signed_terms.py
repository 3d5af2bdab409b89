"""The terms of the loss with their signs: what a step makes smaller, and what larger."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord, ForwardStat
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS
from gradscope.rules.helpers.loss.gains import (
    belongs_to_density,
    is_normal_constant,
    is_normalised_score,
    is_overlap,
    is_signal_to_noise,
)
from gradscope.rules.helpers.loss.linear_ways import signs_of
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats

_PASSED_ON = SAME_NUMBERS | {
    "AddBackward0",
    "CatBackward0",
    "MeanBackward0",
    "MeanBackward1",
    "StackBackward0",
    "SumBackward0",
    "SumBackward1",
}
_NEGATED = frozenset({"NegBackward0", "RsubBackward0", "RsubBackward1"})
_WEIGHED = frozenset({"DivBackward0", "MulBackward0"})
_LOGARITHMS = frozenset({"LogBackward0", "LogSoftmaxBackward0"})

ERRORS = frozenset(
    {
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cross_entropy",
        "ctc_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "mse_loss",
        "nll_loss",
        "smooth_l1_loss",
        "soft_margin_loss",
    }
)
"""Loss functions that are 0 where the prediction is right, and larger elsewhere."""

_PICKING = frozenset(
    {"DiagonalBackward0", "DiagonalBackward0_copy", "GatherBackward0", "IndexBackward0"}
)
_SCALING = frozenset({"ClampBackward1", "ClampMinBackward0", "MulBackward0", "PowBackward0"})
_LIKELIHOODS = ("log-likelihood", "lower surrogate")
_GAINS = (*_LIKELIHOODS, "overlap", "signal-to-noise ratio")
"""Kinds of terms that are larger, the better the model is."""

TermKind = Literal[
    "error",
    "distance",
    "log-likelihood",
    "lower surrogate",
    "overlap",
    "signal-to-noise ratio",
    "other",
]


@dataclass(frozen=True, slots=True)
class SignedTerm:
    """A term that is added up in the loss."""

    node: NodeRecord
    sign: int
    """1 if a step makes it smaller, -1 if it makes it larger, 0 if that is unknown."""
    kind: TermKind
    comparison: ComparisonRecord | None
    """The loss function of an `error`."""
    flip: NodeRecord | None
    """First operation after the term that changes the sign; None without one."""

    @property
    def makes_worse(self) -> bool:
        """Whether a step makes an error larger, or something else as its negative."""
        return self.sign > 0 if self.kind in _GAINS else self.sign < 0

    @property
    def may_be_adversarial(self) -> bool:
        """Whether a generator may enlarge it: it is about two classes, real or not."""
        comparison = self.comparison
        is_binary = comparison is not None and comparison.operation.startswith(
            "binary_cross_entropy"
        )
        return is_binary or self.node.operation == "LogSigmoidBackward0"


def signed_terms(context: RuleContext) -> Iterator[SignedTerm]:
    """Yield the terms of the loss, each with its sign."""
    for one, is_end in _way_to_terms(context):
        if is_end:
            is_unknown = not context.inputs(one.node.index) or (
                one.is_weighed and one.kind in _LIKELIHOODS
            )
            sign = 0 if is_unknown else one.sign
            yield SignedTerm(one.node, sign, one.kind, one.error, one.flip)


def signed_products(context: RuleContext) -> Iterator[tuple[NodeRecord, int]]:
    """Yield the products with data on the way to the terms, each with its sign in the loss."""
    for one, _ in _way_to_terms(context):
        if one.node.operation == "MulBackward0" and len(context.inputs(one.node.index)) == 1:
            yield one.node, one.sign


def _way_to_terms(context: RuleContext) -> Iterator[tuple["_Reached", bool]]:
    """Yield the operations from the loss to its terms, and whether the way ends there."""
    stats = context.shared(forward_stats)
    errors = {
        one.result.node: one
        for one in context.recording.evidence_of(ComparisonRecord)
        if one.operation in ERRORS
    }
    waiting = [_Reached(node, 1) for node in context.first.nodes if node.depth == 0]
    seen = {(one.node.index, one.sign) for one in waiting}
    while waiting:
        reached = waiting.pop()
        node = reached.node
        inputs = context.inputs(node.index)
        error = errors.get(node.index)
        # With two inputs, two outputs of the model are compared, which may be meant to part.
        is_error = error is not None and len(inputs) == 1 and _lowest(stats, node.index) >= 0
        kind = "error" if is_error else _kind(context, stats, node)
        # Densities that are weighed may be those of costly actions.
        is_end = kind != "other" or (reached.is_weighed and is_normal_constant(context, node))
        signs = () if is_end else _signs(context, stats, node, inputs)
        yield reached._replace(kind=kind, error=error), not signs
        is_weighed = reached.is_weighed or (
            node.operation == "MulBackward0" and scale_of(context, node) is None
        )
        for one, factor in zip(inputs, signs, strict=False):
            sign = reached.sign * factor
            if (one, sign) not in seen:
                seen.add((one, sign))
                flip = node if factor < 0 else reached.flip
                waiting.append(_Reached(context.recording.nodes[one], sign, flip, is_weighed))


def likelihood_sign(context: RuleContext, node: int) -> int:
    """Return 1 if a tensor is log-likelihoods, -1 if it is negative ones, 0 if neither.

    Of classes that were picked, or of a normal distribution.
    """
    stats = context.shared(forward_stats)
    record = context.recording.nodes[node]
    if record.operation == "NllLossBackward0":
        return -1
    is_log = record.operation == "LogBackward0" and _highest(stats, node) <= 0
    is_likelihood = is_log or _kind(context, stats, record) == "log-likelihood"
    return int(is_likelihood or _is_normal(context, stats, node))


def _is_normal(context: RuleContext, stats: dict[TensorRef, ForwardStat], node: int) -> bool:
    """Return whether a tensor is `-(x - mean)**2 / (2 * variance) - log(deviation) - constant`."""
    # `Normal.log_prob` squares, negates, divides and subtracts twice. From its result, the order is
    # reversed.
    operations = ["DivBackward0", "NegBackward0", "PowBackward0"]
    if context.recording.nodes[node].operation != "SubBackward0":
        return False
    while inputs := context.inputs(node):
        operation = context.recording.nodes[node].operation
        if operation == operations[0]:
            operations.pop(0)
            if not operations:
                return _is_distance(context, stats, node, inputs[0])
        elif operation != "SubBackward0":
            return False
        node = inputs[0]
    return False


class _Reached(NamedTuple):
    """An operation between the terms and the loss."""

    node: NodeRecord
    sign: int
    flip: NodeRecord | None = None
    is_weighed: bool = False
    """Whether factors that differ may be costs, whose likelihood is to become smaller."""
    kind: TermKind = "other"
    error: ComparisonRecord | None = None


def scale_of(context: RuleContext, product: NodeRecord) -> float | None:
    """Return the magnitude of the factor that all elements of the only input with a gradient got.

    None if there are two such inputs, or if the range of the elements shows that factors differ.
    """
    stats, inputs = context.shared(forward_stats), context.inputs(product.index)
    made = stats.get(TensorRef(node=product.index, slot=0))
    given = stats.get(TensorRef(node=inputs[0], slot=0)) if len(inputs) == 1 else None
    # The range of a single number fits any factor.
    if made is None or given is None or given.numel == 1 or not given.norm:
        return None
    factor = made.norm / given.norm
    ends = sorted((factor * given.minimum, factor * given.maximum))
    turned = sorted(-one for one in ends)
    found = (made.minimum, made.maximum)
    is_same = any(
        all(math.isclose(one, two, rel_tol=1e-4) for one, two in zip(found, span, strict=True))
        for span in (ends, turned)
    )
    return factor if is_same else None


def _signs(
    context: RuleContext,
    stats: dict[TensorRef, ForwardStat],
    node: NodeRecord,
    inputs: list[int],
) -> tuple[int, ...]:
    """Return the sign of the derivative by each input; nothing where the terms end."""
    if node.kind == "view" or node.operation in _PASSED_ON:
        return (1,) * len(inputs)
    if node.operation in _NEGATED and len(inputs) == 1:
        return (-1,)
    if node.operation == "SubBackward0" and len(inputs) == 2:
        return (1, -1)
    if node.operation == "SubBackward0":
        # The recording does not tell which of the two has the gradient.
        return (1,) if belongs_to_density(context, node) else ()
    if node.operation in _WEIGHED and len(inputs) == 1 and _sign(stats, node.index) == 0:
        return signs_of(context, node.index)  # one factor for numbers of both signs
    if node.operation in _WEIGHED and len(inputs) == 1:
        is_positive = _sign(stats, node.index) * _sign(stats, inputs[0]) > 0
        return (1,) if is_positive else ()  # a negative factor may be a reward
    if node.operation == "DivBackward0" and _is_exponent_of_normal(context, stats, inputs):
        return (1,)
    return ()


def _is_exponent_of_normal(
    context: RuleContext, stats: dict[TensorRef, ForwardStat], inputs: list[int]
) -> bool:
    """Return whether a quotient is `-(x - mean) ** 2 / (2 * std ** 2)`, whose scale is learned.

    Or that without its minus, or the magnitude of a Laplace density. A distance that is divided by
    another one may be meant to grow.
    """
    nodes = context.recording.nodes
    square, scale = nodes[inputs[0]], nodes[inputs[-1]]
    if square.operation == "NegBackward0":
        square = nodes[context.inputs(square.index)[0]]
    is_square = square.operation in ("AbsBackward0", "PowBackward0")
    is_positive = _sign(stats, scale.index) > 0
    while scale.kind == "view" or scale.operation in _SCALING:
        behind = context.inputs(scale.index)
        if len(set(behind)) != 1:
            break
        scale = nodes[behind[0]]
    return is_square and is_positive and scale.operation != "SubBackward0"


def _kind(context: RuleContext, stats: dict[TensorRef, ForwardStat], node: NodeRecord) -> TermKind:
    inputs = context.inputs(node.index)
    if len(inputs) == 1 and node.operation in ("PowBackward0", "AbsBackward0"):
        return "distance" if _is_distance(context, stats, node.index, inputs[0]) else "other"
    if len(inputs) == 1 and node.operation in _PICKING:
        # Elements that are picked of anything but log-probabilities are mere scores.
        return "log-likelihood" if is_log_softmax(context, stats, inputs[0]) else "other"
    if len(inputs) == 1 and node.operation == "MulBackward0":
        is_picked = _is_picked(stats, node.index, inputs[0])
        is_likelihood = is_picked and is_log_softmax(context, stats, inputs[0])
        return "log-likelihood" if is_likelihood else "other"
    if node.operation == "LogsumexpBackward0" and _is_mixture(context, stats, inputs[0]):
        return "log-likelihood"
    if node.operation == "MinimumBackward0" and is_surrogate(context, inputs):
        return "lower surrogate"
    return _kind_of_gain(context, node)


def _kind_of_gain(context: RuleContext, node: NodeRecord) -> TermKind:
    if node.operation == "LogSigmoidBackward0" or is_normalised_score(context, node):
        return "log-likelihood"
    if is_signal_to_noise(context, node):
        return "signal-to-noise ratio"
    return "overlap" if is_overlap(context, node) else "other"


def _is_mixture(context: RuleContext, stats: dict[TensorRef, ForwardStat], node: int) -> bool:
    """Return whether a tensor is logarithms of normal densities plus those of their weights."""
    total = context.behind_views(node)
    parts = context.inputs(total.index)
    if total.operation != "AddBackward0" or len(parts) != 2:
        return False
    weights = [one for one in parts if is_log_softmax(context, stats, one)]
    densities = [one for one in parts if _is_normal(context, stats, _unsummed(context, one))]
    return len(weights) == len(densities) == 1


def _unsummed(context: RuleContext, node: int) -> int:
    """Return what a sum over the dimensions of a density is of."""
    return context.behind_views(node, ("SumBackward",)).index


def _is_distance(
    context: RuleContext, stats: dict[TensorRef, ForwardStat], node: int, inner: int
) -> bool:
    """Return whether a node is an even function of a difference from data, without gradient."""
    is_from_data = len(context.inputs(inner)) == 1
    is_difference = context.recording.nodes[inner].operation == "SubBackward0"
    # The exponent is not recorded: a power of a negative number that is positive has an even one.
    is_even = _sign(stats, node) > 0 and _lowest(stats, inner) < 0
    return is_difference and is_from_data and is_even


def is_log_softmax(context: RuleContext, stats: dict[TensorRef, ForwardStat], node: int) -> bool:
    """Return whether a tensor is the logarithms of probabilities."""
    found = context.behind_views(node)
    operation, inputs = found.operation, context.inputs(found.index)
    # `Categorical(logits=…)` subtracts the logsumexp itself.
    is_normalised = operation == "SubBackward0" and any(
        context.recording.nodes[one].operation == "LogsumexpBackward0" for one in inputs
    )
    return (operation in _LOGARITHMS or is_normalised) and _highest(stats, found.index) <= 0


def _is_picked(stats: dict[TensorRef, ForwardStat], product: int, factor: int) -> bool:
    """Return whether a product keeps some elements of a factor and makes the others 0."""
    made = stats.get(TensorRef(node=product, slot=0))
    given = stats.get(TensorRef(node=factor, slot=0))
    if made is None or given is None or made.numel != given.numel:
        return False
    # One of two classes or more is picked: half of the elements or more are zero.
    is_sparse = made.numel / 2 <= made.zeros < made.numel
    return is_sparse and given.minimum <= made.minimum and made.maximum <= 0


def is_surrogate(context: RuleContext, inputs: list[int]) -> bool:
    """Return whether both are weighed ratios of probabilities, one of them clamped."""
    if len(inputs) != 2:
        return False
    factors = [_factor(context, one) for one in inputs]
    clamped = [one for one in factors if one is not None and one.operation.startswith("Clamp")]
    ratios = [one for one in factors if one is not None and one.operation == "ExpBackward0"]
    if len(clamped) != 1 or len(ratios) != 1:
        return False
    return ratios[0].index in context.inputs(clamped[0].index)


def _factor(context: RuleContext, product: int) -> NodeRecord | None:
    """Return the only factor of a product that has a gradient."""
    inputs = context.successors.get(product, ())
    is_product = context.recording.nodes[product].operation == "MulBackward0"
    return context.recording.nodes[inputs[0].node] if is_product and len(inputs) == 1 else None


def _lowest(stats: dict[TensorRef, ForwardStat], node: int) -> float:
    stat = stats.get(TensorRef(node=node, slot=0))
    return float("nan") if stat is None else stat.minimum


def _highest(stats: dict[TensorRef, ForwardStat], node: int) -> float:
    stat = stats.get(TensorRef(node=node, slot=0))
    return float("nan") if stat is None else stat.maximum


def _sign(stats: dict[TensorRef, ForwardStat], node: int) -> int:
    """Return the sign that all elements have; 0 if they have none in common."""
    lowest, highest = _lowest(stats, node), _highest(stats, node)
    if lowest >= 0 and highest > 0:
        return 1
    return -1 if lowest < 0 and highest <= 0 else 0
