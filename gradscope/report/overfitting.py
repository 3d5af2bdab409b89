"""The section on a training on one batch."""

from collections.abc import Iterator

from gradscope.analysis.columns import Columns
from gradscope.analysis.losses.overfitting import Overfit
from gradscope.analysis.report import Report
from gradscope.phrasing import counted
from gradscope.report.document import Fact, Facts, Line, Mark, Section, Strip, Strips, Word
from gradscope.report.number_format import figure
from gradscope.report.parameter_names import folded_names
from gradscope.report.strips import LABEL, Scale, layout_for

_SHOWN = 4
"""Maximum number of names that are spelled out."""

_MARKS: dict[str, Mark] = {"learned": "good", "stuck": "bad", "diverged": "bad"}


def overfit_sections(report: Report, width: int) -> Iterator[Section]:
    """Yield the section of a recording that has a training on one batch."""
    found = Overfit.of(report.recording)
    if found is None:
        return
    record = found.record
    facts = [
        Fact("result", Word(overfit_text(found), _MARKS.get(found.outcome, "plain"))),
        Fact("optimizer", record.optimizer),
        Fact("moved", _moved(report, found)),
    ]
    yield Section(
        title="One batch",
        note="a training on this batch alone, undone afterwards",
        result=f"One batch: {overfit_text(found)}.",
        blocks=(Facts(tuple(facts)), _curve(found, width)),
    )


def overfit_text(found: Overfit) -> str:
    """Return the result in a sentence."""
    losses, steps = found.record.losses, counted(found.steps, "step")
    change = f"loss {figure(losses[0])} → {figure(losses[-1])}"
    match found.outcome:
        case "learned":
            return f"learned after {steps}: {change}"
        case "diverged":
            return f"diverged within {steps}: {change}"
        case "stuck":
            return f"stuck from step {found.since:,}: {change} after {steps}"
        case _:
            return f"still falling after {steps}: {change}"


def _moved(report: Report, found: Overfit) -> Line:
    known = [index for index, moved in enumerate(found.record.moved) if moved is not None]
    if not found.still:
        return f"all {counted(len(known), 'parameter')}"
    every = [parameter.name for parameter in report.parameters]
    names = folded_names([every[index] for index in found.still], every)
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    shown = ", ".join(names[:_SHOWN])
    moving = len(known) - len(found.still)
    return (
        f"{moving:,} of {counted(len(known), 'parameter')}; ",
        Word(f"these did not move: {shown}{more}", "notable"),
    )


def _curve(found: Overfit, width: int) -> Strips:
    losses = found.record.losses
    layout = layout_for(width, label=LABEL)
    columns = Columns(range(len(losses)), layout.strip)
    cells = columns.mean(enumerate(losses))
    course = f"{figure(losses[0])} → {figure(losses[-1])}"
    curve = Strip(label="loss", cells=cells, scale=Scale.linear(cells), course=course)
    return Strips(strips=(curve,), first=0, last=len(losses) - 1, layout=layout)
