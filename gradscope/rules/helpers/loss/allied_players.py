"""Critics of GANs that move the scores of generated data as their generator does."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from gradscope.recording.records import NodeRecord
from gradscope.rules.captured_steps.turns import Turn, turns_of
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import is_custom
from gradscope.rules.helpers.loss.signed_terms import SignedTerm, signed_terms

_LAYERS = ("Addmm", "Linear", "Mm", "Bmm", "Mv", "Convolution")
_OF_TWO = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss"})
_RISING = ("LogSigmoidBackward", "ReluBackward", "SoftplusBackward")
_SHIFTED = {"AddBackward0": 1, "NegBackward0": -1, "RsubBackward0": -1, "RsubBackward1": -1}
"""Operations of one input, and the sign that they give to it."""
_MIDDLE = 0.5
"""Label that lies between both classes."""
_LEAST = 2
"""Number of turns of each of the two."""


class AlliedPlayers(NamedTuple):
    """Two optimizers that move the scores of what one of their networks generates alike."""

    generator: Turn
    critic: Turn
    is_critics: bool
    """Whether the critic's signs are unusual: it lowers the scores of the data."""
    sign: int
    """1 if both lower the scores of generated data."""
    has_labels: bool
    """Whether labels of two classes say so, and not the sign of a mean."""


class _Scores(NamedTuple):
    """The ways in which a critic's own loss moves its scores: 1 if down, -1 if up."""

    data: int
    generated: int


def allied_players(context: RuleContext) -> Iterator[AlliedPlayers]:
    """Yield the pairs of a generator and a critic that work in one direction, each pair once."""
    turns = list(turns_of(context))
    steppers = list(dict.fromkeys(one.stepper for one in turns))
    for critic in steppers:
        for generator in steppers:
            # What both optimizers step belongs to neither player.
            if critic == generator or critic.parameters & generator.parameters:
                continue
            own = [one for one in turns if one.stepper == critic]
            other = [one for one in turns if one.stepper == generator]
            if len(own) < _LEAST or len(other) < _LEAST:
                continue
            scores = {_scores(one, generator.parameters) for one in own}
            signs = {_sign(one, critic.parameters) for one in other}
            if len(scores) == 1 and len(signs) == 1:
                (score,), (sign,) = scores, signs
                if score is not None and sign is not None and sign == score.generated:
                    has_labels = any(_has_labels(one) for one in (own[0], other[0]))
                    yield AlliedPlayers(other[0], own[0], score.data > 0, sign, has_labels)


def _scores(turn: Turn, generator: frozenset[str]) -> _Scores | None:
    """Return the ways of the scores of data and of generated data; None if not opposed."""
    context = RuleContext(turn.captured.recording)
    joins = {
        join
        for cut in context.recording.cuts
        # A critic's turn gets generated data detached or under no_grad: the generator is behind a
        # cut there.
        if not _names(context, cut.parameters).isdisjoint(generator)
        for join in cut.joins
    }
    data, generated = set[int](), set[int]()
    for term in _scored(context):
        behind = {one.index for one in context.behind([term.node.index])}
        names = _names(context, context.parameters_behind([term.node.index]))
        # A mean that the critic's step does not train says nothing of its direction.
        if names.isdisjoint(turn.trained):
            continue
        is_generated = bool(behind & joins) or not names.isdisjoint(generator)
        (generated if is_generated else data).add(term.sign)
    if len(data) == len(generated) == 1 and data == {-one for one in generated} and 0 not in data:
        return _Scores(data.pop(), generated.pop())
    return None


def _sign(turn: Turn, critic: frozenset[str]) -> int | None:
    """Return the way in which the loss of what a critic judges moves the critic's scores."""
    context = RuleContext(turn.captured.recording)
    signs = set[int]()
    for term in _scored(context):
        names = _names(context, context.parameters_behind([term.node.index]))
        if not names.isdisjoint(critic) and not names.isdisjoint(turn.trained):
            signs.add(term.sign)
    # 0 is a sign that the values do not tell.
    return signs.pop() if len(signs) == 1 and 0 not in signs else None


def _scored(context: RuleContext) -> Iterator[SignedTerm]:
    """Yield the terms of the loss that judge a score, each with the way that it moves.

    A score is the output of a layer. What it is compared with is a label of two classes.
    """
    for term in signed_terms(context):
        way = _way_of_label(term)
        if way is None:
            turned = _way_by_hand(context, term.node)
            yield from [replace(term, sign=term.sign * turned)] if turned else ()
        elif way and _is_of_score(context, term.node):
            if any(map(is_custom, context.behind([term.node.index]))):
                continue  # a layer that reverses the gradient opposes the critic by itself
            yield replace(term, sign=term.sign * way)


def _way_of_label(term: SignedTerm) -> int | None:
    """Return 1 if a loss of two classes lowers its scores, -1 if it raises them.

    0 if its labels do not tell, None for any other term.
    """
    comparison = term.comparison
    if comparison is None or comparison.operation not in _OF_TWO:
        return None
    label = comparison.label
    # Least squares may have labels of -1 and 1 and a generator's of 0.
    if label is None or (comparison.operation == "mse_loss" and label not in (0, 1)):
        return 0
    return (label < _MIDDLE) - (label > _MIDDLE)


def _way_by_hand(context: RuleContext, node: NodeRecord) -> int:
    """Return 1 if a term grows with a score, -1 if it falls with it, 0 if it is no such term.

    A score as it is, or the hinge or the logarithm of a logistic function of it.
    """
    way, inputs = 1, context.successors.get(node.index, ())
    if node.operation.startswith(_RISING) and len(inputs) == 1:
        node = context.recording.nodes[inputs[0].node]
        inputs = context.successors.get(node.index, ())
        while len(inputs) == 1 and node.operation in _SHIFTED:
            way *= _SHIFTED[node.operation]
            node = context.recording.nodes[inputs[0].node]
            inputs = context.successors.get(node.index, ())
    return way if _layer_of(context, node) is not None else 0


def _has_labels(turn: Turn) -> bool:
    return any(map(_way_of_label, signed_terms(RuleContext(turn.captured.recording))))


def _is_of_score(context: RuleContext, error: NodeRecord) -> bool:
    """Return whether an error is that of a layer's output, or of its sigmoid."""
    inputs = context.successors.get(error.index, ())
    if len(inputs) != 1:
        return False
    score = context.behind_views(inputs[0].node, ("SigmoidBackward0",))
    return score.operation.startswith(_LAYERS)


def _layer_of(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    layer = context.behind_views(node.index)
    return layer if layer.operation.startswith(_LAYERS) else None


def _names(context: RuleContext, parameters: Iterable[int]) -> frozenset[str]:
    every = context.recording.parameters
    return frozenset(every[index].name for index in parameters)
