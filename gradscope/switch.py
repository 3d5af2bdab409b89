"""The settings that turn gradscope off, in whole or in part."""

import os

OFF = "GRADSCOPE=off"
"""Environment setting that turns off `gradscope run` and `gradscope.watch`."""

NO_TENSORS = "--no-tensors, or tensors=False"
"""Options that turn off detailed captures of a run, as shown to users."""


def is_off() -> bool:
    """Return whether the environment turns gradscope off."""
    return os.environ.get("GRADSCOPE", "").strip().lower() == "off"
