"""The axis of a run's steps."""

from collections.abc import Mapping

from gradscope.report.html.columns import Json

_EACH = 12
"""Steps up to which each has a tick; more have as many as there is room for."""


def step_axis(first: int, last: int, margin: float) -> Mapping[str, Json]:
    """Return the settings of an axis from one step to another, with a margin on both sides."""
    ticks = {"dtick": 1} if last - first < _EACH else {}
    return {"range": [first - margin, last + margin], "tickformat": ",d", **ticks}
