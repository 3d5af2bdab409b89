"""What is recorded of a backward whose forward was not watched."""

from dataclasses import replace

from gradscope.capture.assemble import Assembler
from gradscope.looks.late_looks import LateLook, Suspicion
from gradscope.probes.examinations import EXAMINATIONS
from gradscope.probes.nonfinite_origins import record_of
from gradscope.probes.operations import Places, reference
from gradscope.recording.evidence.batches import ExaminationRecord
from gradscope.recording.evidence.failures import LateCapture, SuspectedBreak
from gradscope.recording.evidence.forward import ForwardStat

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
    _note_examinations(assembler)


def note_suspicion(assembler: Assembler, suspicion: Suspicion) -> None:
    """Note what has perhaps broken the gradients of a step that was not captured."""
    first, *others = suspicion.suspects
    site = assembler.site_of(first.line)
    sites = (assembler.site_of(one.line) for one in others if one.is_likely or not first.is_likely)
    assembler.note(
        LateCapture(
            lines="matched",
            matched_step=suspicion.matched_step,
            matched_nodes=0,
            nodes=0,
            unsure=(),
        ),
        SuspectedBreak(
            operation=first.operation,
            site=site,
            others=tuple(dict.fromkeys(one for one in sites if one not in (None, site))),
            is_likely=first.is_likely,
            parameters=suspicion.parameters,
            matched_step=suspicion.matched_step,
        ),
    )
    _note_examinations(assembler)


def _note_examinations(assembler: Assembler) -> None:
    for name, _ in EXAMINATIONS:
        obstacle = None if name == "non-finite" else NOT_WATCHED
        assembler.note(ExaminationRecord(name=name, obstacle=obstacle))
