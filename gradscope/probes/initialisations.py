"""Which lines initialised the parameters anew, after their layers had."""

from gradscope.probes.context import Scene
from gradscope.recording.evidence.parameters import InitialisationRecord


def examine_initialisations(scene: Scene) -> str | None:
    """Note the line of `torch.nn.init` for each parameter that another line made."""
    for index, parameter in enumerate(scene.named.parameters):
        found = scene.definitions.initialisations.of(parameter)
        made = scene.definitions.registration(parameter)
        if found is None or (made is not None and made.line == found.line):
            continue
        site = scene.assembler.site_of(found.line)
        if site is not None:
            scene.assembler.note(
                InitialisationRecord(parameter=index, site=site, function=found.function)
            )
    return None
