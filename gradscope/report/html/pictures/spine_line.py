"""The line along the depth: tensors that every gradient crosses, made by one kind of operation."""

from dataclasses import dataclass

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.analysis.report import Report
from gradscope.analysis.spine import Spines
from gradscope.recording.records import TensorRef
from gradscope.report.names import operation_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineLine:
    """What vanishing and exploding gradients are judged by."""

    operation: str
    """As people know it: `Add`."""
    tensors: tuple[int, ...]
    """Places of the report's tensors, in the order of the forward."""


def spine_line(report: Report) -> SpineLine | None:
    """Return the line of a report; None where its graph has too few operations of one type."""
    indexed = RecordingIndex(report.recording)
    spines = Spines(indexed)
    reading = spines.first
    trends = [trend for trend in (reading.loss, reading.growth) if trend is not None]
    if not trends:
        return None
    steepest = max(trends, key=lambda trend: abs(trend.decades))
    operation = steepest.matched[0].node.operation
    chain = max(spines.chains(indexed.first), key=len)
    known = {TensorRef(node=row.node, slot=row.slot): at for at, row in enumerate(report.tensors)}
    refs = (
        indexed.first.measured(TensorRef(node=index, slot=0))
        for index in reversed(chain)
        if indexed.recording.nodes[index].operation == operation
    )
    found = tuple(known[ref] for ref in dict.fromkeys(refs) if ref in known)
    return SpineLine(operation=operation_text(operation), tensors=found)
