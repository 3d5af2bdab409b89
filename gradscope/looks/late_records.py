"""What is recorded of a backward whose forward was not watched."""

from dataclasses import replace

from gradscope.capture.assemble import Assembler
from gradscope.looks.late_looks import LateLook
from gradscope.probes.examinations import EXAMINATIONS
from gradscope.probes.nonfinite_origins import record_of
from gradscope.probes.operations import Places, reference
from gradscope.recording.evidence.examination import ExaminationRecord
from gradscope.recording.evidence.forward_stat import ForwardStat

NOT_WATCHED = "the forward of this step was not watched"


def note_late(assembler: Assembler, late: LateLook, places: Places, first_node: int) -> None:
    """Note where a forward and its backward broke, and how that is known.

    Args:
        assembler: Takes the records.
        late: What was seen.
        places: By creation number: where the records of the graph's nodes are.
        first_node: Where the first of them is.
    """
    lines = late.lines
    assembler.note(replace(lines, unsure=tuple(first_node + node for node in lines.unsure)))
    for origin in late.found.origins:
        assembler.note(record_of(assembler, origin, places, of_loss=late.found.of_loss))
    for number, (numel, values) in late.values.items():
        tensor = reference(places, number)
        if tensor is not None:
            assembler.note(ForwardStat(tensor=tensor, numel=numel, **values._asdict()))
    for name, _ in EXAMINATIONS:
        obstacle = None if name == "non-finite" else NOT_WATCHED
        assembler.note(ExaminationRecord(name=name, obstacle=obstacle))
