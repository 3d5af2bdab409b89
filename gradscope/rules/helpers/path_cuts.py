"""Cuts behind parameters that learn otherwise: whom they concern."""

from collections.abc import Iterable, Iterator

from gradscope.analysis.reach import Reach
from gradscope.recording.evidence.cuts import PathCutRecord
from gradscope.recording.records import TensorRef
from gradscope.rules.context import RuleContext

_DRAWS = frozenset({"_sample_dirichlet", "_standard_gamma", "normal"})


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


def is_made_of(context: RuleContext, tensor: TensorRef, origins: Iterable[TensorRef]) -> bool:
    """Return whether a tensor is one of several, or was made from one."""
    wanted = set(origins)
    seen, waiting = {tensor}, [tensor]
    while waiting:
        one = waiting.pop()
        if one in wanted:
            return True
        fresh = [ref for ref in context.successors.get(one.node, ()) if ref not in seen]
        seen.update(fresh)
        waiting += fresh
    return False


def is_sample(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a cut is a draw from a distribution that could hand a gradient on."""
    if cut.operation in _DRAWS:
        return True
    # Some distributions draw by way of `rsample` under no_grad.
    site = context.site(cut.site)
    return cut.kind == "no-grad" and site is not None and ".sample(" in site.source
