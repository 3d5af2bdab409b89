"""Policy losses: log-likelihoods of actions, each times a reward, with their sign in the loss."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.records import NodeRecord, Site, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS
from gradscope.rules.helpers.loss.signed_terms import (
    is_log_softmax,
    is_surrogate,
    likelihood_sign,
    signed_products,
    signed_terms,
)
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.helpers.source_text import statement_texts

_REWARDS = frozenset(
    {"adv", "advs", "advantage", "advantages", "discounted", "gae", "payoff", "payoffs"}
    | {"ret", "rets", "return", "returns", "reward", "rewards"}
)
_WRAPPERS = frozenset({"FloatTensor", "Tensor", "Variable", "as_tensor", "cat", "stack", "tensor"})
_LETTERS = frozenset({"G", "R"})
"""Names of returns that are one letter."""
_COSTS = frozenset(
    {"baseline", "cost", "costs", "energy", "error", "errors", "kl", "loss", "losses", "neg"}
    | {"negative", "nll", "penalty", "penalties", "regret", "risk"}
)
# `reward / probability` is the importance weight of a drawn action, which needs no logarithm.
_CORRECTIONS = frozenset(
    {"importance", "ips", "prob", "propensity", "ratio", "weight", "weighted", "weights"}
)
_PICKING = frozenset({"GatherBackward0", "IndexBackward0", "SelectBackward0"})
# Names are split at underscores and at capitals, as in `cumReward`.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class PolicyTerm(NamedTuple):
    """A product of a log-likelihood and a reward in the loss."""

    product: NodeRecord
    sign: int
    """1 if a step makes rewarded actions less likely, -1 if more."""
    reward: str
    """Source text of the reward."""


def policy_terms(context: RuleContext) -> Iterator[PolicyTerm]:
    """Yield the policy losses of which the source names the reward."""
    for product, sign in signed_products(context):
        likelihood = _likelihood(context, product)
        site = context.site(product.site)
        if likelihood and site is not None:
            products = _products(context, site)
            reward = next(filter(None, map(_reward, products)), None)
            is_plain = reward is not None and not _has_negative_weight(products, reward)
            if reward is not None and is_plain and _is_defined_as_reward(context, site, reward):
                yield PolicyTerm(product, sign * likelihood, ast.unparse(reward))


def weighed_probabilities(context: RuleContext) -> Iterator[tuple[PolicyTerm, NodeRecord]]:
    """Yield the products of one picked probability of a softmax and a reward, with the softmax."""
    found = list[tuple[PolicyTerm, NodeRecord]]()
    for product, sign in signed_products(context):
        softmax, site = _picked_softmax(context, product), context.site(product.site)
        if softmax is None or site is None:
            continue
        reward = next(filter(None, map(_reward, _products(context, site))), None)
        is_plain = reward is not None and not _is_corrected(reward)
        if reward is not None and is_plain and _is_defined_as_reward(context, site, reward):
            found.append((PolicyTerm(product, sign, ast.unparse(reward)), softmax))
    picks = [softmax.index for _, softmax in found]
    # All actions with their probabilities are an expectation, which needs no logarithm.
    yield from (one for one in found if picks.count(one[1].index) == 1)


def _picked_softmax(context: RuleContext, product: NodeRecord) -> NodeRecord | None:
    """Return the softmax of which a product weighs picked elements; None of anything else."""
    node, is_picked = product, False
    while len(inputs := context.successors.get(node.index, ())) == 1:
        node = context.recording.nodes[inputs[0].node]
        if node.operation == "SoftmaxBackward0":
            return node if is_picked else None
        is_picked |= node.operation in _PICKING
        is_passed = node.operation in _PICKING | {"NegBackward0", "ToCopyBackward0"}
        if not is_passed and node.kind != "view":
            return None
    return None


def _is_corrected(reward: ast.expr) -> bool:
    """Return whether a reward is divided, as by the probability that the action was drawn with."""
    return any(
        isinstance(one, ast.Div) or set(_WORD.findall(_name(one).lower())) & _CORRECTIONS
        for one in ast.walk(reward)
    )


def is_policy_loss(context: RuleContext) -> bool:
    """Return whether the loss makes rewarded actions more likely: with a reward, or as PPO does."""
    if any(term.sign < 0 for term in policy_terms(context)):
        return True
    nodes = (n for n in context.recording.nodes if n.operation.startswith(("Maximum", "Minimum")))
    return any(is_surrogate(context, context.inputs(node.index)) for node in nodes)


def weighs_actions_both_ways(context: RuleContext) -> bool:
    """Return whether log-probabilities of picked classes are weighed by numbers of both signs.

    So are advantages, and costs less a baseline, whatever their names are.
    """
    stats = context.shared(forward_stats)
    for product, _ in signed_products(context):
        stat = stats.get(TensorRef(node=product.index, slot=0))
        if stat is not None and stat.minimum < 0 < stat.maximum and _likelihood(context, product):
            return True
    return False


def penalised_entropies(context: RuleContext) -> Iterator[NodeRecord]:
    """Yield the sums of probabilities times their logarithms that each step enlarges."""
    stats = context.shared(forward_stats)
    for term in signed_terms(context):
        inputs = context.successors.get(term.node.index, ())
        if term.sign >= 0 or term.node.operation != "MulBackward0" or len(inputs) != 2:
            continue
        for ref, other in (inputs, inputs[::-1]):
            stat = stats.get(other)
            is_probability = stat is not None and stat.minimum >= 0 and stat.maximum <= 1
            if is_probability and is_log_softmax(context, stats, _unclamped(context, ref.node)):
                yield term.node
                break


def _unclamped(context: RuleContext, node: int) -> int:
    """Return a tensor before the lower limit that torch's distributions give logarithms."""
    while context.recording.nodes[node].operation.startswith("Clamp"):
        node = context.successors[node][0].node
    return node


def _likelihood(context: RuleContext, product: NodeRecord) -> int:
    """Return 1 if a product is of log-likelihoods, -1 of negative ones, 0 of something else."""
    sign, node = 1, product.index
    while inputs := context.successors.get(node, ()):
        if len(inputs) == 1:
            node = inputs[0].node
        operation = context.recording.nodes[node].operation
        if found := likelihood_sign(context, node):
            return sign * found
        is_passed = operation in SAME_NUMBERS or operation.startswith(("Sum", "Squeeze"))
        if operation == "NegBackward0":
            sign = -sign
        elif not is_passed and context.recording.nodes[node].kind != "view":
            return 0
    return 0


def _products(context: RuleContext, site: Site) -> list[tuple[ast.expr, ast.expr]]:
    """Return the factors of the products on a line; of a longer statement, those of its only one.

    Another product of the statement may be on another line.
    """
    own = list(_products_in(site.source))
    longer = (list(_products_in(text)) for text in statement_texts(context, site))
    return own or next((found for found in longer if len(found) == 1), [])


def _products_in(text: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield node.left, node.right
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("mul", "multiply"):
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            factors = [*([owner] if owner and len(node.args) == 1 else []), *node.args]
            if len(factors) == 2:
                yield factors[0], factors[1]


def _parsed(text: str) -> ast.AST:
    """Return the tree of a statement, or of a line of a longer one as far as it has a meaning."""
    text = text.strip()
    # A line may be the head of a block, an argument with its comma, or an entry of a dictionary.
    for attempt in (text, f"{text} pass", f"({text.rstrip(',')})", f"{{{text}}}"):
        try:
            return ast.parse(attempt)
        except SyntaxError:
            continue
    return ast.Module(body=[], type_ignores=[])


def _reward(factors: Sequence[ast.expr]) -> ast.expr | None:
    """Return the only factor that is named as a reward."""
    named = [one for one in factors if _is_reward(one)]
    return named[0] if len(named) == 1 else None


def _is_reward(value: ast.expr) -> bool:
    """Return whether an expression is named as what is to become large, without a minus."""
    if isinstance(value, ast.BinOp):
        if isinstance(value.op, ast.Sub):  # less a baseline, which may be named by a reward
            return _is_reward(value.left)
        return isinstance(value.op, ast.Div | ast.Mult) and _is_reward(value.left)
    if isinstance(value, ast.Subscript):
        return _is_reward(value.value) or (
            isinstance(value.slice, ast.Constant) and _is_named_reward(str(value.slice.value))
        )
    if isinstance(value, ast.Call):
        is_method = isinstance(value.func, ast.Attribute)
        if _last_name(value.func) in _WRAPPERS and value.args:
            return _is_reward(value.args[0])
        return _is_named_reward(_last_name(value.func)) or (
            is_method and _is_reward(value.func.value)  # type: ignore[attr-defined]
        )
    return _is_named_reward(_last_name(value))


def _has_negative_weight(products: list[tuple[ast.expr, ast.expr]], reward: ast.expr) -> bool:
    """Return whether another factor beside a reward has a minus that no operation shows.

    So it is with `-weights * log_prob * advantage`, where the weights have no gradient.
    """
    chains = [[*_factors(left), *_factors(right)] for left, right in products]
    # Products of a chain are nested: the longest one has all factors.
    chain = max((one for one in chains if reward in one), key=len, default=[])
    others = [one for one in chain if one is not reward]
    return len(others) > 1 and any(
        isinstance(one, ast.UnaryOp)
        and isinstance(one.op, ast.USub)
        and not any("log" in _name(part).lower() for part in ast.walk(one))
        for one in others
    )


def _factors(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return [*_factors(value.left), *_factors(value.right)]
    return [value]


def _last_name(value: ast.expr) -> str:
    if isinstance(value, ast.Attribute):
        return value.attr
    return value.id if isinstance(value, ast.Name) else ""


def _is_named_reward(name: str) -> bool:
    words = {word.lower() for word in _WORD.findall(name)}
    return name in _LETTERS or (bool(words & _REWARDS) and not words & _COSTS)


def _is_defined_as_reward(context: RuleContext, site: Site, reward: ast.expr) -> bool:
    """Return whether no line that is known gives the reward another sign."""
    names = {one.id for one in ast.walk(reward) if isinstance(one, ast.Name)}
    for record in context.recording.evidence_of(SourceRecord):
        for line in record.lines if record.file == site.file else ():
            for node in ast.walk(_parsed(line)):
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    is_defined = any(_last_name(one) in names for one in targets)
                    if is_defined and _is_turned(node.value):
                        return False
    return True


def _is_turned(value: ast.expr) -> bool:
    """Return whether an expression takes rewards with a minus, or is made of costs."""
    for node in ast.walk(value):
        subtracted = node.right if isinstance(node, ast.BinOp) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            subtracted = node.operand
        elif subtracted is not None and not isinstance(node.op, ast.Sub):  # type: ignore[attr-defined]
            subtracted = None
        if subtracted is not None and _is_reward(subtracted) and not _is_mean(subtracted):
            return True
        words = {word.lower() for word in _WORD.findall(_name(node))}
        # An advantage is defined as returns less a baseline.
        if words & (_COSTS - {"baseline"}):
            return True
    return False


def _is_mean(value: ast.expr) -> bool:
    """Return whether an expression is the mean of rewards, as a baseline or a normalisation is."""
    return isinstance(value, ast.Call) and _last_name(value.func) in ("mean", "median", "min")


def _name(node: ast.AST) -> str:
    return _last_name(node) if isinstance(node, ast.expr) else ""
