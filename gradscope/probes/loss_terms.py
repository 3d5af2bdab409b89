"""Measures the gradient of each named term of the loss separately."""

import math
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.source.lines import Line
from gradscope.capture.step.graph import release, walk
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.batches import LossTermRecord, TermPairRecord
from gradscope.target.target import Outcome

MOST_TERMS = 8
"""Maximum number of terms; each term needs a backward."""


class _Term(NamedTuple):
    name: str
    value: Tensor
    weight: Tensor
    """Derivative of the loss with respect to the term."""
    gradients: dict[int, Tensor]
    """Gradient of the term times its weight, by parameter."""


def probe_loss_terms(context: ProbeContext) -> str | None:
    """Record the gradients of the terms, if the loss has two or more named terms."""
    if context.terms < 2:
        return None
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    try:
        outcome = context.forward()
        terms = _terms(context, outcome)
    except GradscopeError as error:
        return f"the forward raised when it was repeated: {error.what}"
    except RuntimeError as error:  # for example under a reentrant checkpoint
        return f"backward raised when it was repeated: {str(error).splitlines()[0]}"
    if len(terms) < 2:
        return None
    lines = _lines(context, outcome, [term.value for term in terms])
    for term, line in zip(terms, lines, strict=True):
        context.assembler.note(
            LossTermRecord(
                name=term.name,
                site=context.assembler.site_of(line),
                value=float(term.value.detach()),
                weight=float(term.weight),
                norm=_norm(list(term.gradients.values())),
                parameters=tuple(term.gradients),
            )
        )
    for first, second in combinations(range(len(terms)), 2):
        context.assembler.note(_pair(terms, first, second))
    return None


def _terms(context: ProbeContext, outcome: Outcome) -> list[_Term]:
    """Return the terms of the loss, each with its own gradients."""
    given = outcome.terms[:MOST_TERMS]
    weights = torch.autograd.grad(
        outcome.loss, [term for _, term in given], retain_graph=True, allow_unused=True
    )
    parameters = context.named.parameters
    positions = [
        position
        for position in sorted(context.measured.reached)
        if parameters[position].requires_grad
    ]
    found = []
    for (name, term), weight in zip(given, weights, strict=True):
        # A term that the loss does not contain, or multiplies by 0, has no part in its gradient.
        if weight is None or not bool(weight.any()):
            continue
        gradients = torch.autograd.grad(
            term, [parameters[p] for p in positions], weight, retain_graph=True, allow_unused=True
        )
        by_place = {p: g for p, g in zip(positions, gradients, strict=True) if g is not None}
        found.append(_Term(name, term, weight, by_place))
    return found


def _pair(terms: list[_Term], first: int, second: int) -> TermPairRecord:
    one, other = terms[first].gradients, terms[second].gradients
    shared = tuple(position for position in one if position in other)
    norms = (
        _norm([one[position] for position in shared]),
        _norm([other[position] for position in shared]),
    )
    # Large products of both signs may cancel: `fsum` rounds once.
    product = math.fsum(_dot(one[position], other[position]) for position in shared)
    return TermPairRecord(
        first=first,
        second=second,
        first_norm=norms[0],
        second_norm=norms[1],
        cosine=product / (norms[0] * norms[1]) if norms[0] * norms[1] else math.nan,
        parameters=shared,
    )


def _dot(one: Tensor, other: Tensor) -> float:
    flat = [_dense(tensor).double().flatten() for tensor in (one, other)]
    return float(torch.dot(*flat))


def _norm(gradients: list[Tensor]) -> float:
    return math.hypot(*(float(_dense(one).double().norm()) for one in gradients))


def _dense(gradient: Tensor) -> Tensor:
    gradient = gradient.to_dense() if gradient.layout is not torch.strided else gradient
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


def _lines(context: ProbeContext, outcome: Outcome, terms: list[Tensor]) -> list[Line | None]:
    """Return the lines that computed the terms, None if the second run was different."""
    graph, known = walk(outcome.loss), context.capture.graph
    positions = [None if term.grad_fn is None else graph.index.get(term.grad_fn) for term in terms]
    is_alike = graph.operations == known.operations
    graph.index.clear()
    graph.leaves.clear()
    release(graph.nodes)
    return [
        context.capture.line_of(known.nodes[position])
        if is_alike and position is not None
        else None
        for position in positions
    ]
