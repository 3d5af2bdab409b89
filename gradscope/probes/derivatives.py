"""Records what the forward did with derivatives that it computed."""

from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.forward import PartialNormRecord, ZeroDerivativeRecord


def probe_derivatives(context: ProbeContext) -> str | None:
    """Record derivatives that are zero everywhere, and norms over a part of one."""
    if context.opaque:
        return "compiled code cannot be observed"
    site_of, seen = context.assembler.site_of, context.capture.derivatives
    for zero in dict.fromkeys(seen.zeros):
        context.assembler.note(
            ZeroDerivativeRecord(
                site=site_of(zero.line), elements=zero.elements, has_graph=zero.has_graph
            )
        )
    for one in dict.fromkeys(seen.partial):
        context.assembler.note(
            PartialNormRecord(
                site=site_of(one.line), norms=one.norms, examples=one.examples, shape=one.shape
            )
        )
    return None
