"""What the model is given."""

from gradscope.capture.edges import tensors
from gradscope.capture.naming import shape_of
from gradscope.probes.scene import Scene
from gradscope.recording.evidence.batches import BatchRecord


def examine_batch(scene: Scene) -> str | None:
    """Note the shapes of the batch's tensors."""
    shapes = tuple(shape_of(tensor) for tensor in tensors(scene.target.batch))
    scene.assembler.note(BatchRecord(shapes=shapes))
    return None
