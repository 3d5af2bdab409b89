"""What the events of a run say as a whole."""

from gradscope.recording.records import Recording

_OF_GRADIENTS = frozenset({"backward", "backward-error", "grad", "grad-error", "step"})


def says_nothing(recording: Recording) -> bool:
    """Return whether the recording of a run says nothing about gradients.

    A script that starts others which train may still make an optimizer, or zero gradients.
    """
    kinds = {event.kind for event in recording.events}
    return not recording.looks and kinds.isdisjoint(_OF_GRADIENTS)
