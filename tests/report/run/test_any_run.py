"""Runs of any events, as scripts nobody thought of make them."""

import json
from importlib.resources import files

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from gradscope.session.report import Report
from tests.report.run.conftest import shown
from tests.rules.accumulation.runs import Run

SCHEMA = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())
KINDS = (
    "backward", "grad", "zero", "clip-norm", "clip-value", "unscale", "scaler-update",
    "scaler-step", "scheduler", "mode", "epoch", "anything",
)  # fmt: skip
NAMES = ("norm", "max_norm", "clip_value", "rows", "skipped", "create", "manual", "lr")
EVENTS = st.tuples(
    st.sampled_from(KINDS),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(0, 5),
    st.sampled_from(["", "outside", "optimizer", "[/x]\x1b"]),
    st.dictionaries(st.sampled_from(NAMES), st.floats() | st.sampled_from([0.0, 1.0])),
)
STEPS = st.tuples(st.lists(EVENTS, max_size=6), st.integers(0, 2), st.none() | st.floats())


@st.composite
def recordings(draw):
    run = Run()
    weights = run.model("model", 2)
    made = [run.optimizer(weights, name) for name in ("SGD", "Adam", "Adam")]
    for events, optimizer, loss in draw(st.lists(STEPS, max_size=8)):
        for kind, line, owner, subject, numbers in events:
            run.event(kind, line, optimizer=owner, subject=subject, **numbers)
        if loss is not None:
            run.backward(weights, line=5, loss=loss)
        run.step(made[optimizer], line=6)
    for kind, line, owner, subject, numbers in draw(st.lists(EVENTS, max_size=4)):
        run.event(kind, line, optimizer=owner, subject=subject, **numbers)
    return run.recording()


@given(recordings(), st.integers(20, 150))
def test_any_run_can_be_shown(recording, width):
    for output_format in ("full", "concise", "markdown", "jsonl"):
        assert "\x1b" not in shown(recording, output_format, width=width)
    value = json.loads(shown(recording, "json"))
    jsonschema.Draft202012Validator(SCHEMA).validate(value)


@given(recordings())
def test_every_step_is_in_one_picture(recording):
    run = Report.from_recording(recording).training_run
    made = [step for step in recording.steps if step.optimizer is not None]
    if run is None:
        assert not recording.steps
        return
    skipped = sum(
        event.kind == "scaler-step"
        and dict(event.numbers).get("skipped", 0.0) >= 1.0
        and event.optimizer is not None
        for event in recording.events
    )
    drawn = sum(pattern.count for pattern in run.patterns)
    assert len(run.steps) == len(made)
    assert len(made) + skipped <= drawn <= len(made) + skipped + 1
