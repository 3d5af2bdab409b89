"""A comparison of recordings in each of the output formats."""

DEFAULT_TOP = 10
"""Number of parameters listed by default, the worst first."""
