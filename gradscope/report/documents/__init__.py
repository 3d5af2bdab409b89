"""Each kind of report as a `Document`, and its texts."""

DEFAULT_TOP = 10
"""Number of parameters that a comparison lists by default, the worst first."""
