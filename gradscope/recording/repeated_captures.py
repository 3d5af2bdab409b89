"""Captured steps that share the graph, modules and lines of an earlier one."""

from collections.abc import Iterator
from dataclasses import replace

from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.code import SourceRecord, StatementRecord
from gradscope.recording.evidence.forward import ComparisonRecord, SoftmaxRecord
from gradscope.recording.evidence.optimizers import OptimizerRecord
from gradscope.recording.evidence.parameters import (
    AttributeRecord,
    CallerRecord,
    DroppedRecord,
    FreezeRecord,
    InitialisationRecord,
    LeafRecord,
    ReplacementRecord,
)
from gradscope.recording.records import CapturedStep, Recording

NOT_IN_EVERY_STEP = "not in every captured step"
"""Why a captured step lacks measurements that other captured steps have."""

_OF_STRUCTURE = frozenset(
    {
        AttributeRecord,
        CallerRecord,
        ComparisonRecord,
        DroppedRecord,
        FreezeRecord,
        InitialisationRecord,
        LeafRecord,
        OptimizerRecord,
        ReplacementRecord,
        SoftmaxRecord,
        SourceRecord,
        StatementRecord,
    }
)
"""Evidence that depends only on graph, modules and lines."""

_OF_NUMBERS = frozenset({"forward", "half precision", "symmetry", "twins"})
"""Probes that read elements of tensors."""

_NONFINITE = "non-finite"
"""Finds nothing if everything is finite, as in a captured step that repeats another."""


def repeated(known: Recording, own: Recording) -> Recording:
    """Return a captured step with its own statistics and the structure of an earlier one.

    Args:
        known: The earlier captured step.
        own: Header, steps and statistics, and the evidence that replaces the earlier one's.
    """
    kinds = {type(record) for record in own.evidence}
    shared = (one for one in known.evidence if type(one) in _OF_STRUCTURE - kinds)
    return replace(
        own,
        parameters=known.parameters,
        modules=known.modules,
        calls=known.calls,
        sites=known.sites,
        nodes=known.nodes,
        edges=known.edges,
        cuts=known.cuts,
        skipped=known.skipped,
        evidence=(*own.evidence, *shared, *_probe_records(known)),
    )


def own_part(captured: CapturedStep) -> Recording:
    """Return the part of a captured step that it does not repeat; all of it if it repeats none."""
    if captured.same_as is None:
        return captured.recording
    return replace(
        captured.recording,
        parameters=(),
        modules=(),
        calls=(),
        sites=(),
        nodes=(),
        edges=(),
        cuts=(),
        skipped=(),
        evidence=captured.own_evidence,
    )


def _probe_records(known: Recording) -> Iterator[ProbeRecord]:
    for record in known.evidence_of(ProbeRecord):
        if record.name in _OF_NUMBERS and record.obstacle is None:
            yield replace(record, obstacle=NOT_IN_EVERY_STEP)
        elif record.name == _NONFINITE:
            yield replace(record, obstacle=None)
        else:
            yield record
