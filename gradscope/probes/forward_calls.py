"""Records the forward's losses, softmaxes, derivatives and checkpoints."""

import math

from torch.autograd.graph import Node

from gradscope.capture.step.graph import Edge
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.batches import (
    InvertedMaskRecord,
    MaskedWeightRecord,
    PaddedReadRecord,
    PositionRowRecord,
    SeenAnswerRecord,
)
from gradscope.recording.evidence.failures import UnrepeatedRegion
from gradscope.recording.evidence.forward import (
    ComparisonRecord,
    FreshTargetRecord,
    LoneNormalisationRecord,
    OwnAnchorRecord,
    OwnSimilarityRecord,
    PaddedMeanRecord,
    PartialNormRecord,
    ProbabilityTargetRecord,
    RepeatedPositiveRecord,
    SoftmaxRecord,
    UnreachableTargetRecord,
    ZeroDerivativeRecord,
    ZeroLabelRecord,
    ZeroQuotientRecord,
)
from gradscope.recording.records import TensorRef

_SOFTMAXES = frozenset({"LogSoftmaxBackward0", "SoftmaxBackward0"})


def probe_comparisons(context: ProbeContext) -> str | None:
    """Record the comparisons that lead to the loss, and the softmaxes of the graph."""
    if context.opaque:
        return "compiled code cannot be observed"
    for one in context.capture.comparisons.comparisons:
        result = _reference(context, one.result)
        if result is not None:
            context.assembler.note(
                ComparisonRecord(
                    operation=one.operation,
                    site=context.assembler.site_of(one.line),
                    left=one.left,
                    right=one.right,
                    left_tensor=_reference(context, one.left_edge),
                    right_tensor=_reference(context, one.right_edge),
                    result=result,
                    left_from=one.left_from,
                    right_from=one.right_from,
                    reduction=one.reduction,
                    ahead=one.ahead,
                    targets=None if one.padded is None else one.padded.counted,
                    at_padding=None if one.padded is None else one.padded.at_padding,
                    padding_class=None if one.padded is None else one.padded.label,
                    grown=None if one.grown is None else context.assembler.site_of(one.grown),
                    label=one.label,
                )
            )
    _note_labels(context)
    _note_masks(context)
    _note_sequences(context)
    _note_by_hand(context)
    _note_ranges(context)
    _note_answers(context)
    if not context.of_run:  # a run compares several steps
        _note_quotients(context)
    graph = context.capture.graph
    for index, node in enumerate(graph.nodes):
        if graph.operations[index] in _SOFTMAXES:
            dimension = _dimension(node)
            context.assembler.note(
                SoftmaxRecord(node=context.position.first_node + index, dimension=dimension)
            )
        elif _normalised_elements(node) == 1:
            context.assembler.note(
                LoneNormalisationRecord(node=context.position.first_node + index)
            )
    return None


def probe_derivatives(context: ProbeContext) -> str | None:
    """Record derivatives that are zero everywhere, and norms over a part of one."""
    if context.opaque:
        return "compiled code cannot be observed"
    site_of, seen = context.assembler.site_of, context.capture.derivatives
    for zero in dict.fromkeys(seen.zeros):
        context.assembler.note(
            ZeroDerivativeRecord(
                site=site_of(zero.line), elements=zero.elements, has_graph=zero.has_graph
            )
        )
    for one in dict.fromkeys(seen.partial):
        context.assembler.note(
            PartialNormRecord(
                site=site_of(one.line), norms=one.norms, examples=one.examples, shape=one.shape
            )
        )
    return None


def _note_labels(context: ProbeContext) -> None:
    site_of, labels = context.assembler.site_of, context.capture.pair_labels
    rows = context.capture.own_rows
    for own in (*labels.own, *rows.own):
        context.assembler.note(
            OwnSimilarityRecord(
                site=site_of(own.line),
                rows=own.rows,
                largest=own.largest,
                is_answer=own.is_answer,
            )
        )
    for repeated in rows.repeated:
        site = site_of(repeated.line)
        context.assembler.note(RepeatedPositiveRecord(site=site, rows=repeated.rows))
    for one in labels.zeros:
        context.assembler.note(
            ZeroLabelRecord(
                site=site_of(one.line), operation=one.operation, labels=one.labels, zeros=one.zeros
            )
        )
    for target in context.capture.probability_targets.found:
        context.assembler.note(
            ProbabilityTargetRecord(
                site=site_of(target.line),
                examples=target.examples,
                several=target.several,
                largest=target.largest,
                least=target.least,
                are_binary=target.are_binary,
            )
        )


def _note_masks(context: ProbeContext) -> None:
    site_of = context.assembler.site_of
    for one in context.capture.padding_masks.inverted:
        context.assembler.note(
            InvertedMaskRecord(
                site=site_of(one.line),
                used=site_of(one.used),
                visible=one.visible,
                hidden=one.hidden,
                token=one.token,
            )
        )


def _note_sequences(context: ProbeContext) -> None:
    site_of = context.assembler.site_of
    for rows in context.capture.position_rows.found:
        context.assembler.note(
            PositionRowRecord(
                site=site_of(rows.line), examples=rows.examples, positions=rows.positions
            )
        )
    for read in context.capture.behind_padding.found:
        result = _reference(context, read.result)
        if result is not None:
            context.assembler.note(
                PaddedReadRecord(
                    site=site_of(read.line),
                    result=result,
                    sequences=read.sequences,
                    padded=read.padded,
                    share=read.share,
                )
            )
    for one in context.capture.masked_weights.found:
        context.assembler.note(
            MaskedWeightRecord(
                site=site_of(one.line),
                softmax=site_of(one.softmax),
                way=one.way,
                weight=one.weight,
                filled=one.filled,
            )
        )


def _note_by_hand(context: ProbeContext) -> None:
    for one in context.capture.padded_means.found:
        if _reference(context, one.result) is not None:
            context.assembler.note(
                PaddedMeanRecord(
                    site=context.assembler.site_of(one.line),
                    operation=one.operation,
                    positions=one.positions,
                    at_padding=one.at_padding,
                    is_masked=one.is_masked,
                )
            )
    for fresh in context.capture.fresh_targets.found:
        if _reference(context, fresh.result) is not None:
            site_of = context.assembler.site_of
            record = FreshTargetRecord(site=site_of(fresh.line), noise=site_of(fresh.noise))
            context.assembler.note(record)
    for anchor in context.capture.own_anchors.found:
        made = _reference(context, anchor.result)
        if made is not None:
            site = context.assembler.site_of(anchor.line)
            context.assembler.note(OwnAnchorRecord(node=made.node, site=site))


def _note_answers(context: ProbeContext) -> None:
    site_of, modules = context.assembler.site_of, context.capture.modules.innermost()
    for one in context.capture.answer_sight.found:
        call = modules.find(one.number)
        context.assembler.note(
            SeenAnswerRecord(
                site=site_of(one.line),
                operation=one.operation,
                mixer=site_of(one.mixer),
                call=None if call is None else context.position.first_call + call,
                ahead=one.ahead,
                targets=one.targets,
                seen=one.seen,
            )
        )


def _note_ranges(context: ProbeContext) -> None:
    for one in context.capture.target_ranges.found:
        result = _reference(context, one.result)
        if result is not None:
            context.assembler.note(
                UnreachableTargetRecord(
                    site=context.assembler.site_of(one.line),
                    operation=one.operation,
                    bound=_reference(context, one.bound),
                    result=result,
                    low=one.low,
                    high=one.high,
                    elements=one.elements,
                    outside=one.outside,
                    lost=one.lost,
                    least=one.least,
                    most=one.most,
                )
            )


def _note_quotients(context: ProbeContext) -> None:
    observed = context.capture.unvarying
    for line, one in observed.quotients.items():
        # Positions divided by a block size are 0 in the first block of every batch.
        if line not in observed.varying and not one.is_sorted:
            context.assembler.note(
                ZeroQuotientRecord(
                    site=context.assembler.site_of(line),
                    elements=one.elements,
                    largest=one.largest,
                    divisor=one.divisor,
                )
            )


def _reference(context: ProbeContext, edge: Edge | None) -> TensorRef | None:
    slot = None if edge is None else context.capture.graph.slot_of(edge)
    return (
        None
        if slot is None
        else TensorRef(node=context.position.first_node + slot[0], slot=slot[1])
    )


def _dimension(node: Node) -> int:
    """Return the forward's `dim`, counted from the first dimension."""
    dimension: int = node._saved_dim  # type: ignore[attr-defined]
    if dimension >= 2**63:  # a negative number, read as unsigned
        dimension -= 2**64
    rank = len(node._input_metadata[0].shape)
    return dimension % rank if rank else 0


def _normalised_elements(node: Node) -> int | None:
    """Return the number of elements that share a mean; None if the node normalises nothing."""
    if node.name() == "NativeGroupNormBackward0":
        # The number of groups is a plain number, as are the sizes: no tensor is unpacked.
        per_channel = node._saved_C // node._saved_group  # type: ignore[attr-defined]
        return int(per_channel * node._saved_HxW)  # type: ignore[attr-defined]
    if node.name() == "NativeLayerNormBackward0":
        return math.prod(node._saved_normalized_shape)  # type: ignore[attr-defined]
    return None


def probe_checkpoints(context: ProbeContext) -> str | None:
    """Record the lines of these checkpoints."""
    if context.opaque:
        return "compiled code cannot be observed"
    for one in context.capture.checkpoints.found:
        site = context.assembler.site_of(one.line)
        context.assembler.note(UnrepeatedRegion(site=site, calls=one.calls))
    return None
