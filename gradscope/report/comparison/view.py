"""What of a comparison is shown."""

DEFAULT_TOP = 10
"""So many parameters are listed, the worst first."""
