"""Which parameters without a gradient led to nothing that the model returned."""

from collections.abc import Iterator

from gradscope.capture.cuts import leaves_behind
from gradscope.capture.modules import ModuleCall
from gradscope.probes.scene import Scene
from gradscope.recording.evidence.parameters import DroppedRecord


def examine_dropped(scene: Scene) -> str | None:
    """Note the parameters of which neither the loss nor what the model returned makes use."""
    lost = {
        id(scene.named.parameters[record.index]): record.index
        for record in scene.named.parameter_records
        if record.requires_grad and record.index not in scene.measured.reached
    }
    if not lost:
        return None
    calls = list(_calls_from_outside(scene))
    # Of a container that nobody can look into it is not known what was in it.
    if not calls or not all(call.outputs for call in calls):
        return "nothing of the graph was found in what the model returned"
    if any(edge.number is not None for call in calls for edge in call.outputs):
        return "the model was called more often than what it returned is held"
    for leaf in leaves_behind(*(edge for call in calls for edge in call.outputs)):
        lost.pop(id(leaf), None)
    if lost:
        scene.assembler.note(DroppedRecord(parameters=tuple(sorted(lost.values()))))
    return None


def _calls_from_outside(scene: Scene) -> Iterator[ModuleCall]:
    """Yield the calls of the model's modules that none of its modules made."""
    own = {id(module) for module in scene.named.modules}
    calls = scene.capture.modules.calls
    for call in calls:
        outer = None if call.parent is None else calls[call.parent].module
        if id(call.module) in own and id(outer) not in own:
            yield call
