"""Backwards that seek the derivative of an input, and train nothing."""

from gradscope.recording.evidence.parameters import LeafRecord
from gradscope.recording.records import Recording


def reaches_others(recording: Recording) -> bool:
    """Return whether a tensor that is in no module gets a gradient: an input, or a variable."""
    unregistered = {leaf.node for leaf in recording.evidence_of(LeafRecord)}
    owners = (
        recording.modules[recording.parameters[node.parameter].module]
        for node in recording.nodes
        if node.parameter is not None
    )
    leaves = {node.index for node in recording.nodes if node.kind == "leaf"}
    return bool(leaves - unregistered) or any(not owner.path for owner in owners)
