"""Critics of Wasserstein GANs that move the scores of generated data as their generator does."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gradscope.recording.records import NodeRecord
from gradscope.rules.captured_steps.turns import Turn, turns_of
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.signed_terms import SignedTerm, signed_terms

_LAYERS = ("Addmm", "Linear", "Mm", "Bmm", "Mv", "Convolution")
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


class _Scores(NamedTuple):
    """The signs of a critic's mean scores in its own loss."""

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
                    yield AlliedPlayers(other[0], own[0], score.data > 0, sign)


def _scores(turn: Turn, generator: frozenset[str]) -> _Scores | None:
    """Return the signs of the mean scores of data and of generated data; None if not opposed."""
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
    for term in _mean_scores(context):
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
    """Return the sign of the critic's mean score in the loss of what it judges."""
    context = RuleContext(turn.captured.recording)
    signs = set[int]()
    for term in _mean_scores(context):
        names = _names(context, context.parameters_behind([term.node.index]))
        if not names.isdisjoint(critic) and not names.isdisjoint(turn.trained):
            signs.add(term.sign)
    # 0 is a sign that the values do not tell.
    return signs.pop() if len(signs) == 1 and 0 not in signs else None


def _mean_scores(context: RuleContext) -> Iterator[SignedTerm]:
    """Yield the terms of the loss that are outputs of layers, as they are."""
    for term in signed_terms(context):
        if _layer_of(context, term.node) is not None:
            yield term


def _layer_of(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    layer = context.behind_views(node.index)
    return layer if layer.operation.startswith(_LAYERS) else None


def _names(context: RuleContext, parameters: Iterable[int]) -> frozenset[str]:
    every = context.recording.parameters
    return frozenset(every[index].name for index in parameters)
