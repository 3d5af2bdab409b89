"""Which line made the model that is trained in the place of one that an optimizer holds."""

from collections.abc import Iterator

from gradscope.recording.evidence.optimizers import OptimizerRecord
from gradscope.recording.evidence.parameters import CallerRecord
from gradscope.recording.records import CapturedStep, Recording, Site
from gradscope.rules.context import RuleContext


def line_of_newer_model(context: RuleContext, step: int) -> Site | None:
    """Return the line that made what gets gradients from a step on and no optimizer holds.

    Of a function that makes each of the models, it is the line that called it. None where it is not
    known, or where it was made before the optimizers were.
    """
    before: set[Site] = set()
    for captured in context.recording.captured_steps:
        if captured.step >= step:
            found = _line(captured, before)
            if found is not None:
                return found
        before.update(_lines_of_modules(captured.recording))
    return None


def _lines_of_modules(recording: Recording) -> Iterator[Site]:
    for module in recording.modules:
        if module.site is not None:
            yield recording.sites[module.site]


def _line(captured: CapturedStep, before: set[Site]) -> Site | None:
    recording = captured.recording
    records = recording.evidence_of(OptimizerRecord)
    if not records:
        return None
    held = frozenset[int]().union(*(record.parameters for record in records))
    later = frozenset.intersection(*(frozenset(record.later) for record in records))
    fed = {one.parameter for one in recording.parameter_stats if one.reach == "gradient"}
    for index in sorted((fed & later) - held):
        module = recording.parameters[index].module
        position = recording.modules[module].site
        if position is None:
            continue
        made = recording.sites[position]
        return (_caller(recording, module) if made in before else None) or made
    return None


def _caller(recording: Recording, module: int) -> Site | None:
    """Return the line that called the function that made a module; None where it is not known."""
    for record in recording.evidence_of(CallerRecord):
        if record.module == module:
            return recording.sites[record.site]
    return None
