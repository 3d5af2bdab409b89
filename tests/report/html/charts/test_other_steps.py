import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gradscope.recording.records import StepRecord
from gradscope.report.html.charts.other_steps import other_steps
from gradscope.session.report import Report
from tests.report.conftest import build
from tests.report.html.figures import assert_valid, shown

LOSSES = st.lists(st.none() | st.floats(), min_size=1, max_size=5)


def report_of(training, judged, probes):
    """Return a report of steps with these losses, the judged one among them."""
    kinds = ["training"] * len(training) + ["step"] + ["probe"] * len(probes)
    losses = [*training, judged, *probes]
    recording = build()
    steps = tuple(
        StepRecord(
            index=at, kind=kind, graph=0 if kind == "step" else None, loss=loss, optimizer=None
        )
        for at, (kind, loss) in enumerate(zip(kinds, losses, strict=True))
    )
    stats = tuple(
        replace(stat, step=len(training)) for stat in recording.parameter_stats if not stat.step
    )
    tensors = tuple(replace(stat, step=len(training)) for stat in recording.tensor_stats)
    return Report.from_recording(
        replace(recording, steps=steps, parameter_stats=stats, tensor_stats=tensors)
    )


@given(LOSSES, st.none() | st.floats(), LOSSES)
def test_each_loss_is_a_number_a_cross_or_nothing(training, judged, probes):
    chart = other_steps(report_of(training, judged, probes))
    assert_valid(chart)
    data = shown(chart)["data"]
    curve = next(one for one in data if one["name"] == "loss")
    broken = next((one["x"] for one in data if one["name"] == "loss: NaN, inf"), [])
    for step, loss in enumerate([*training, judged, *probes]):
        drawn = curve["y"][curve["x"].index(step)]
        is_number = loss is not None and math.isfinite(loss)
        assert drawn == (loss if is_number else None)
        assert (step in broken) == (loss is not None and not is_number)
    assert curve["marker"]["size"].index(11) == len(training)


def test_a_step_alone_makes_no_picture():
    recording = build()
    lone = replace(recording, steps=recording.steps[:1])
    assert other_steps(Report.from_recording(lone)) is None
