"""Recordings whose gradients are anything that a gradient can be."""

import math
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from gradscope.session.report import Report
from tests.report.conftest import build, gradient

NORMS = st.one_of(
    st.none(),
    st.sampled_from([0.0, math.nan, math.inf, 5e-324, 1.7e308]),
    st.floats(1e-30, 1e30),
)


def gradient_of(norm):
    """Return a gradient of a norm; None for none."""
    if norm is None:
        return None
    return gradient(norm, nonfinite=0 if math.isfinite(norm) else 1)


def report_of(tensors, parameters):
    """Return a report with gradient norms of the hand-made net's tensors and parameters."""
    recording = build()
    tensor_stats = tuple(
        replace(stat, gradient=gradient_of(norm), order=None if norm is None else stat.order)
        for stat, norm in zip(recording.tensor_stats, tensors, strict=True)
    )
    stats = []
    for stat in recording.parameter_stats:
        if stat.step or stat.reach == "frozen":
            stats.append(stat)
            continue
        norm = parameters[stat.parameter]
        reach = "none" if norm is None else "zero" if norm == 0 else "gradient"
        stats.append(replace(stat, gradient=gradient_of(norm), reach=reach))
    return Report.from_recording(
        replace(recording, tensor_stats=tensor_stats, parameter_stats=tuple(stats))
    )


REPORTS = st.builds(
    report_of,
    st.lists(NORMS, min_size=4, max_size=4),
    st.lists(NORMS, min_size=4, max_size=4),
)


@pytest.fixture
def report():
    return Report.from_recording(build())
