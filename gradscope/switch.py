"""The ways out of trouble: not to be watched at all, or not to be looked at closely."""

import os

OFF = "GRADSCOPE=off"
"""What turns `gradscope run` and `gradscope.watch` off, in the environment."""

NO_TENSORS = "--no-tensors, or tensors=False"
"""What leaves out the close looks of a run, as options name it."""


def is_off() -> bool:
    """Return whether the environment says that nothing is to be watched."""
    return os.environ.get("GRADSCOPE", "").strip().lower() == "off"
