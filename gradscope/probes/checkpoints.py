"""Records checkpoints whose recomputation draws other random numbers than their forward."""

from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.failures import UnrepeatedRegion


def probe_checkpoints(context: ProbeContext) -> str | None:
    """Record the lines of these checkpoints."""
    if context.opaque:
        return "compiled code cannot be observed"
    for one in context.capture.checkpoints.found:
        site = context.assembler.site_of(one.line)
        context.assembler.note(UnrepeatedRegion(site=site, calls=one.calls))
    return None
