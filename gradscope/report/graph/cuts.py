"""The lines that cut gradients off, as parts of a drawing."""

from gradscope.recording.records import CutRecord
from gradscope.recording.step_view import StepView
from gradscope.report.paths import shown_site

SCISSORS = "✂"


def cuts_of(view: StepView) -> tuple[CutRecord, ...]:
    """Return the cuts in a step's forward."""
    graph = view.step.graph if view.step else None
    return tuple(cut for cut in view.recording.cuts if cut.graph == graph)


def cut_label(cut: CutRecord) -> str:
    """Return the call that cuts, behind scissors."""
    call = ".data" if cut.operation == "data" else f"{cut.operation}()"
    if cut.operation == "checkpoint":
        call = "checkpoint(use_reentrant=True)"
    words = f"{SCISSORS} {call}"
    words += " under no_grad" if cut.kind == "no-grad" else ""
    return words if cut.count == 1 else f"{words} {cut.count} calls"


def cut_place(view: StepView, cut: CutRecord) -> str:
    """Return the line that cuts, empty where it is not known."""
    site = None if cut.site is None else view.recording.sites[cut.site]
    return shown_site(site, view.recording.target.root)


def cut_module(view: StepView, cut: CutRecord) -> int | None:
    """Return the module in whose call the gradient is cut off; None outside of all."""
    return None if cut.call is None else view.recording.calls[cut.call].module
