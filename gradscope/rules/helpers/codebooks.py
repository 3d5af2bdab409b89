"""Encoders that choose codes, and learn nothing from what is computed with these."""

from collections.abc import Iterator
from typing import NamedTuple

from gradscope.analysis.reach import Reach
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import path_cuts
from gradscope.rules.helpers.loss.flow import is_averaged_into_loss
from gradscope.rules.helpers.source_text import weight_follows

_DIFFERENCES = ("HuberLoss", "MseLoss", "SmoothL1Loss", "Sub", "Rsub", "L1Loss")


_DISTRIBUTIONS = ("Softmax", "LogSoftmax", "Logsumexp", "Sigmoid", "LogSigmoid")

_LIKELIHOODS = ("Gather", "Index", "NllLoss", "BinaryCrossEntropy", "MaskedSelect", "Select")
"""Prefixes of operations that take the number of one class, as of a label or an action."""


class StarvedEncoder(NamedTuple):
    """What chooses codes, and gets no gradient from what is computed from them."""

    cut: PathCutRecord
    """The choice."""
    codes: NodeRecord
    """Operation that takes the codes, or uses them."""
    commitment: NodeRecord
    """The comparison with the codes or a prior, its only way to the loss."""
    parameters: tuple[int, ...]


def starved_encoders(context: RuleContext) -> Iterator[StarvedEncoder]:
    """Yield the encoders whose only gradient comes from a comparison with their detached codes.

    The codes go on into layers, which learn. A straight-through estimator would use the encoder's
    output beside the comparison, and so does a decoder of the output itself.
    """
    cuts = list(path_cuts(context))
    for cut, _ in cuts:
        if cut.kind != "non-differentiable":
            continue
        for output in dict.fromkeys(context.behind_views(one.node).index for one in cut.origins):
            encoder = context.parameters_behind([output])
            joins = {
                join
                for one, parameters in cuts
                if encoder <= set(parameters)
                for join in one.joins
                if _compares(context, join, output)
            }
            users = _users(context, output)
            codes = [join for join in cut.joins if join not in joins | users]
            used = next((one for one in codes if _feeds_layers(context, one)), None)
            if encoder and joins and users == joins and used is not None:
                nodes = context.recording.nodes
                yield StarvedEncoder(cut, nodes[used], nodes[min(joins)], tuple(sorted(encoder)))


def starved_choices(context: RuleContext) -> Iterator[StarvedEncoder]:
    """Yield the encoders whose scores choose codes, and otherwise only meet a prior.

    Such are a divergence and an entropy: no layer follows them, and no label or action is looked
    up. A policy gradient looks up its actions, and a router multiplies what it chose.
    """
    for cut, _ in path_cuts(context):
        if cut.kind != "non-differentiable":
            continue
        for output in dict.fromkeys(context.behind_views(one.node).index for one in cut.origins):
            users = _users(context, output)
            encoder = context.parameters_behind([output])
            codes = [join for join in cut.joins if join not in users]
            used = next((one for one in codes if _feeds_layers(context, one)), None)
            if encoder and users and used is not None and _are_of_prior(context, users):
                nodes = context.recording.nodes
                yield StarvedEncoder(cut, nodes[used], nodes[min(users)], tuple(sorted(encoder)))


def _are_of_prior(context: RuleContext, users: set[int]) -> bool:
    """Return whether only a distribution's own numbers lead on to the loss, through no layer."""
    nodes, reach = context.recording.nodes, context.shared(Reach)
    waiting, seen = list(users), set(users)
    while waiting:
        node = waiting.pop()
        inputs = context.successors.get(node, ())
        is_layer = any(reach.is_parameter(ref.node) for ref in inputs)
        if is_layer or nodes[node].operation.startswith(_LIKELIHOODS):
            return False
        fresh = [one for one in context.users.get(node, ()) if one not in seen]
        seen.update(fresh)
        waiting += fresh
    return any(nodes[one].operation.startswith(_DISTRIBUTIONS) for one in users)


def _compares(context: RuleContext, node: int, output: int) -> bool:
    """Return whether a term of the loss is the difference of a tensor and a constant."""
    inputs = [context.behind_views(one.node).index for one in context.successors.get(node, ())]
    is_difference = context.recording.nodes[node].operation.startswith(_DIFFERENCES)
    # The detached codes have no edge.
    return is_difference and inputs == [output] and is_averaged_into_loss(context, node)


def _feeds_layers(context: RuleContext, node: int) -> bool:
    """Return whether a layer that learns takes a node's result, or made it of a constant."""
    is_layer = context.recording.nodes[node].operation.startswith(("Addmm", "Conv", "Linear", "Mm"))
    return is_layer or weight_follows(context, node)


def _users(context: RuleContext, node: int) -> set[int]:
    """Return the operations that take a tensor, or a view of it."""
    waiting, found = list(context.users.get(node, ())), set[int]()
    while waiting:
        user = waiting.pop()
        if context.recording.nodes[user].kind == "view":
            waiting += context.users.get(user, ())
        else:
            found.add(user)
    return found
