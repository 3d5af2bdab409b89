"""The lines that cut gradients off, as parts of a drawing."""

from gradscope.analysis.step_view import StepView
from gradscope.analysis.view import shown_site
from gradscope.recording.records import CutRecord

SCISSORS = "✂"


def cuts_of(view: StepView) -> tuple[CutRecord, ...]:
    """Return the cuts in a step's forward."""
    graph = view.step.graph if view.step else None
    return tuple(cut for cut in view.recording.cuts if cut.graph == graph)


def cut_call(cut: CutRecord) -> str:
    """Return the call that cuts, as `detach()`."""
    if cut.operation == "checkpoint":
        return "checkpoint(use_reentrant=True)"
    call = ".data" if cut.operation == "data" else f"{cut.operation}()"
    call += " under no_grad" if cut.kind == "no-grad" else ""
    return call if cut.count == 1 else f"{call}, {cut.count:,} calls,"


def cut_label(cut: CutRecord) -> str:
    """Return the call that cuts, behind scissors."""
    return f"{SCISSORS} {cut_call(cut)}".removesuffix(",")


def cut_place(view: StepView, cut: CutRecord) -> str:
    """Return the line that cuts, empty where it is not known."""
    site = None if cut.site is None else view.recording.sites[cut.site]
    return shown_site(site, view.recording.target.root)


def cut_module(view: StepView, cut: CutRecord) -> int | None:
    """Return the module in whose call the gradient is cut off; None outside of all."""
    return None if cut.call is None else view.recording.calls[cut.call].module
