"""Losses that do nothing but draw two outputs of one network together, or push them apart."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord, PathCutRecord
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import reached_beside
from gradscope.rules.helpers.loss.linear_ways import signs_of

_DISTANCES = frozenset({"huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"})
_SIMILARITIES = frozenset({"cosine_similarity"})

_SIGNS: Mapping[str, int] = {
    "AddBackward0": 1,
    "CloneBackward0": 1,
    "DivBackward0": 1,
    "MeanBackward0": 1,
    "MeanBackward1": 1,
    "MulBackward0": 1,
    "NegBackward0": -1,
    "RsubBackward1": -1,
    "StackBackward0": 1,
    "SumBackward0": 1,
    "SumBackward1": 1,
    "ToCopyBackward0": 1,
}
"""Operations that combine terms into a loss, and the sign that they give to each term."""

_PRODUCTS = ("DivBackward0", "MulBackward0")
_SUMS = frozenset({"AddBackward0", "RsubBackward1", "SubBackward0"})
_ASSEMBLING = frozenset({"CopySlices", "IndexPutBackward0", "WhereBackward0"})

_KEEP_APART = (
    "Cholesky",
    "Inverse",
    "LinalgCholesky",
    "LinalgEigh",
    "LinalgInv",
    "LinalgQr",
    "LinalgSolve",
    "LinalgSvd",
    "StdBackward",
    "VarBackward",
)
"""Prefixes of operations that give a batch of outputs a spread of its own, such as whitening."""

_LEAST_SHARED = 0.5
"""Minimum share of a side's parameters in common with the other side for both to be one network."""


class _Term(NamedTuple):
    """A term of the loss."""

    record: ComparisonRecord | None
    """None for anything but a known comparison."""
    sign: int
    is_sure: bool
    """Whether the signs of all factors on the way are known; others are taken as positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attraction:
    """A term of a loss that pulls two outputs of one network together."""

    record: ComparisonRecord
    shared: frozenset[int]
    """Parameters that both sides were computed from."""


def attractions(context: RuleContext) -> tuple[Attraction, ...]:
    """Return such terms of a loss without any other terms; none of any other loss."""
    found = []
    for record, sign, _ in _terms(context):
        is_drawn = record is not None and sign == (1 if record.operation in _DISTANCES else -1)
        one = _attraction(context, record) if record is not None and is_drawn else None
        if one is None:
            return ()
        found.append(one)
    return tuple(found)


def repulsions(context: RuleContext) -> tuple[ComparisonRecord, ...]:
    """Return the similarities of a network's outputs to its own detached ones that steps reduce.

    None of a loss that has any other term.
    """
    found = []
    for record, sign, is_sure in _terms(context):
        is_similarity = record is not None and record.operation in _SIMILARITIES
        is_pushed = is_similarity and is_sure and sign > 0
        if record is None or not is_pushed or not _is_of_own_constant(context, record):
            return ()
        found.append(record)
    return tuple(found)


def _is_of_own_constant(context: RuleContext, record: ComparisonRecord) -> bool:
    """Return whether one side has a gradient, and the other was cut from most of its parameters."""
    sides = [one for one in (record.left_tensor, record.right_tensor) if one is not None]
    if len(sides) != 1:
        return False
    held = context.parameters_behind([sides[0].node])
    inner = {one.index for one in context.behind([record.result.node])}
    inner -= {one.index for one in context.behind([sides[0].node])}
    cut = set[int]()
    for one in context.recording.evidence_of(PathCutRecord):
        if inner & set(one.joins):
            cut |= set(one.parameters)
    # Without a cut behind it, the other side is data.
    return len(held & cut) >= _LEAST_SHARED * len(cut) > 0


def collapsing(context: RuleContext) -> tuple[Attraction, ...]:
    """Return such terms of a loss with other terms, if nothing else trains what both sides share.

    As of a perceptual loss whose features are trained, too.
    """
    found = list[Attraction]()
    for record, sign, _ in _terms(context):
        if record is not None and sign == (1 if record.operation in _DISTANCES else -1):
            one = _attraction(context, record)
            found += [] if one is None else [one]
    terms = {one.record.result.node for one in found}
    others = reached_beside(context, terms) if found else frozenset()
    return tuple(one for one in found if one.shared.isdisjoint(others))


def _terms(context: RuleContext) -> Iterator[_Term]:
    """Yield the terms of the loss with their signs."""
    records = {
        record.result.node: record
        for record in context.recording.evidence_of(ComparisonRecord)
        if record.operation in _DISTANCES | _SIMILARITIES
    }
    waiting = [(node.index, 1, True) for node in context.first.nodes if node.depth == 0]
    seen = set[int]()
    while waiting:
        index, sign, is_sure = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        node = context.recording.nodes[index]
        inputs = context.successors.get(index, ())
        own = 1 if node.kind == "view" else _SIGNS.get(node.operation, 0)
        is_product = node.operation in _PRODUCTS
        if index in records:
            yield _Term(records[index], sign, is_sure)
        elif node.operation == "SubBackward0" and len(inputs) == 2:
            waiting += [(inputs[0].node, sign, is_sure), (inputs[1].node, -sign, is_sure)]
        elif not own or not inputs or (is_product and len(inputs) > 1):
            yield _Term(None, sign, is_sure)
        else:
            # The graph does not hold a constant factor, but the values on both sides of it.
            known = signs_of(context, index) if is_product else (own,)
            way = sign * (known[0] if known else own)
            waiting += [(ref.node, way, is_sure and bool(known)) for ref in inputs]


def _attraction(context: RuleContext, record: ComparisonRecord) -> Attraction | None:
    """Return what both sides of a comparison share, None if they are not runs of one network."""
    left, right = record.left_tensor, record.right_tensor
    if left is None or right is None:
        return None
    sides = [_side(context, one) for one in (left, right)]
    operations = [{one.index for one in side if one.kind == "operation"} for side in sides]
    held = [{one.parameter for one in side if one.parameter is not None} for side in sides]
    shared = held[0] & held[1]
    is_one_network = shared and len(shared) >= _LEAST_SHARED * min(map(len, held))
    # A result that both sides use, such as a function and its derivative, is not a second run.
    if not is_one_network or operations[0] & operations[1]:
        return None
    # Whitening, or a spread of the batch, keeps a constant output from being a minimum.
    if any(one.operation.startswith(_KEEP_APART) for side in sides for one in side):
        return None
    ends = [_end(context, one) for one in (left, right)]
    # Batch normalisation does the same for outputs that end in it.
    if all("BatchNorm" in end.operation for end in ends):
        return None
    # What data are added to is a target, or the residual of an equation.
    if any(_mixes_data_in(context, end) for end in ends):
        return None
    return Attraction(record=record, shared=frozenset(shared))


def _side(context: RuleContext, tensor: TensorRef) -> list[NodeRecord]:
    return list(context.behind([tensor.node]))


def _end(context: RuleContext, tensor: TensorRef) -> NodeRecord:
    """Return the operation that made an output: the last one that does more than scale it."""
    return context.behind_views(tensor.node, _PRODUCTS)


def _mixes_data_in(context: RuleContext, end: NodeRecord) -> bool:
    """Return whether data are added to an output, or replace some of it."""
    # Data have no edge.
    is_alone = len(context.successors.get(end.index, ())) == 1
    return (end.operation in _SUMS and is_alone) or end.operation in _ASSEMBLING
