"""Finds the lines that initialized parameters again, after their layers had."""

from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.parameters import InitialisationRecord


def probe_initialisations(context: ProbeContext) -> str | None:
    """Record the line of `torch.nn.init` for each parameter that another line made."""
    for index, parameter in enumerate(context.named.parameters):
        found = context.definitions.initialisations.of(parameter)
        made = context.definitions.registration(parameter)
        if found is None or (made is not None and made.line == found.line):
            continue
        site = context.assembler.site_of(found.line)
        if site is not None:
            context.assembler.note(
                InitialisationRecord(parameter=index, site=site, function=found.function)
            )
    return None
