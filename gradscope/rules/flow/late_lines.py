"""How sure a line is, of a backward whose forward was not watched."""

from collections.abc import Iterator, Mapping

from gradscope.recording.evidence.late_capture import LateCapture
from gradscope.recording.finding import RelatedLocation
from gradscope.rules.case import Case
from gradscope.rules.flow.upstream import line_of


def late_capture(case: Case) -> LateCapture | None:
    """Return how a backward was captured whose forward was not, None for any other."""
    return next(iter(case.recording.evidence_of(LateCapture)), None)


def certainty(case: Case) -> str:
    """Return the end of a message that says how its line is known; empty where it was seen."""
    late = late_capture(case)
    if late is None or late.lines == "watched":
        return ""
    if late.lines == "matched":
        return f" (its line is that of the same operation in step {late.matched_step})"
    return " (its line was not seen: only modules with parameters are known in this step)"


def line_evidence(case: Case) -> Mapping[str, float | str | bool | None]:
    """Return how the line is known, for those who read findings by program."""
    late = late_capture(case)
    if late is None:
        return {}
    return {
        "line_is": "exact" if late.lines == "watched" else late.lines,
        "matched_step": late.matched_step,
        "operation_is": "one of several" if late.unsure else "exact",
    }


def other_places(case: Case, site: int | None) -> Iterator[RelatedLocation | None]:
    """Yield the lines of operations that may as well have been the first to break."""
    late = late_capture(case)
    lines = {line_of(case, case.recording.nodes[node]) for node in late.unsure} if late else set()
    for line in sorted(one for one in lines if one is not None and one != site):
        yield case.related(line, "or here: what this operation returned is saved nowhere")
