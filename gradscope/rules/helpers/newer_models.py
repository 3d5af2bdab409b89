"""Which line made the model that is trained in the place of one that an optimizer holds."""

from gradscope.recording.evidence.optimizers import OptimizerRecord
from gradscope.recording.records import CapturedStep, Site
from gradscope.rules.context import RuleContext


def line_of_newer_model(context: RuleContext, step: int) -> Site | None:
    """Return the line that made what gets gradients from a step on and no optimizer holds.

    None where it is not known, or where it was made before the optimizers were.
    """
    for captured in context.recording.captured_steps:
        if captured.step >= step:
            found = _line(captured)
            if found is not None:
                return found
    return None


def _line(captured: CapturedStep) -> Site | None:
    recording = captured.recording
    records = recording.evidence_of(OptimizerRecord)
    if not records:
        return None
    held = frozenset[int]().union(*(record.parameters for record in records))
    later = frozenset.intersection(*(frozenset(record.later) for record in records))
    fed = {one.parameter for one in recording.parameter_stats if one.reach == "gradient"}
    for index in sorted((fed & later) - held):
        position = recording.modules[recording.parameters[index].module].site
        if position is not None:
            return recording.sites[position]
    return None
