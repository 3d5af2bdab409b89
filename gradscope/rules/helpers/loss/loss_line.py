"""The line that computes the loss of a run's captured steps."""

from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext


def loss_line(context: RuleContext, first: int = 0) -> Site | None:
    """Return the line of the last operation of the loss in a captured step, from a step on."""
    for captured in context.recording.captured_steps:
        if captured.step < first:
            continue
        nodes, sites = captured.recording.nodes, captured.recording.sites
        # Nodes are recorded from the loss on: the first one is its last operation.
        if nodes and nodes[0].site is not None:
            return sites[nodes[0].site]
    return None
