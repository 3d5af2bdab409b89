"""Cuts behind parameters that learn otherwise: whom they concern."""

from collections.abc import Iterator

from gradscope.analysis.reach import Reach
from gradscope.recording.evidence.cuts import PathCutRecord
from gradscope.rules.context import RuleContext


def path_cuts(context: RuleContext) -> Iterator[tuple[PathCutRecord, tuple[int, ...]]]:
    """Yield the cuts, and the parameters behind each that this backward is to train.

    In a training run those are the ones that the steps after it update.
    """
    reach = context.shared(Reach)
    wanted = reach.learning if context.run is None else context.run.stepped
    for cut in context.recording.evidence_of(PathCutRecord):
        concerned = tuple(index for index in cut.parameters if index in wanted)
        if concerned:
            yield cut, concerned


def call_of(cut: PathCutRecord) -> str:
    """Return how a cut is called in messages."""
    if cut.operation == "data":
        return ".data"
    if cut.operation == "autograd.grad":
        return "autograd.grad() without create_graph"
    return f"{cut.operation}() under no_grad" if cut.kind == "no-grad" else f"{cut.operation}()"
