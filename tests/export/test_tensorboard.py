"""Files of events, as TensorBoard's own reader takes them."""

import builtins
import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from gradscope.errors import GradscopeError
from gradscope.export.files import EVENTS_FILE, _checksums, check_tensorboard, write_events
from gradscope.export.scalars import Scalars, scalars
from tests.export.conftest import HOSTILE


@pytest.fixture
def curves(tmp_path):
    """Write scalars, and read them back: by tag, steps, seconds and values."""

    def read(steps):
        write_events(steps, tmp_path / EVENTS_FILE)
        found = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload()
        return {
            tag: [(one.step, one.wall_time, one.value) for one in found.Scalars(tag)]
            for tag in found.Tags()["scalars"]
        }

    return read


def single(value):
    """A number as 32 bits hold it."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_curves_of_a_run_are_those_of_its_report(curves, run_report):
    found = curves(scalars(run_report))
    run = run_report.training_run
    for turn, name in enumerate(("slow", "fast")):
        steps = run.steps[turn::2]
        assert found[f"global/{name}/loss"] == [
            (step.step, step.seconds, single(step.loss)) for step in steps
        ]
        for tag, field in (
            ("grad_norm", "grad_norm"),
            ("learning_rate", "learning_rate"),
            ("grad_norm_before_clip", "norm_before_clip"),
        ):
            values = [getattr(step, field) for step in steps]
            expected = [single(value) for value in values if value is not None]
            curve = found.get(f"global/{name}/{tag}", [])
            assert [value for *_, value in curve] == expected
    assert "global/slow/grad_norm_before_clip" in found


def test_curves_of_parameters_and_modules_are_those_of_the_recording(curves, run_report):
    found = curves(scalars(run_report))
    recording = run_report.recording
    norms = {}
    for stat in recording.parameter_stats:
        name = recording.parameters[stat.parameter].name
        norms.setdefault(name, []).append((stat.step, stat.gradient.norm))
    for name, expected in norms.items():
        curve = [(step, value) for step, _, value in found[f"parameter_grad_norm/{name}"]]
        assert curve == [(step, single(norm)) for step, norm in expected]
    inner = zip(norms["body.2.0.weight"], norms["body.2.0.bias"], strict=True)
    assert [value for *_, value in found["module_grad_norm/body.2"]] == pytest.approx(
        [math.hypot(one, other) for (_, one), (_, other) in inner]
    )
    # A whole model has the norm of its optimizer's step, and a single parameter its own.
    assert "module_grad_norm/body" not in found
    assert "module_grad_norm/body.1" not in found
    ratio = next(s for s in recording.parameter_stats if s.update_norm is not None)
    assert found[f"parameter_update_ratio/{recording.parameters[ratio.parameter].name}"][0][
        2
    ] == single(ratio.update_norm / ratio.weight_norm)


def test_an_inspection_has_curves_too(curves, inspected):
    found = curves(scalars(inspected))
    losses = [(step.index, single(step.loss)) for step in inspected.recording.steps]
    assert [(step, value) for step, _, value in found["global/loss"]] == losses
    assert len(found["parameter_grad_norm/used.0.weight"]) == 3
    assert "parameter_grad_norm/unused.weight" not in found


def test_hostile_names_and_odd_numbers(curves, odd):
    found = curves(scalars(odd))
    assert math.isnan(found[f"parameter_grad_norm/{HOSTILE[0]}"][0][2])
    assert found[f"parameter_grad_norm/{HOSTILE[1]}"][0][2] == math.inf
    assert found[f"parameter_grad_norm/{HOSTILE[2]}"][0][2] == 0.0
    assert f"parameter_grad_norm/{HOSTILE[3]}" not in found
    assert f"parameter_grad_norm/{HOSTILE[5]}" in found


def test_numbers_beyond_32_bits_are_infinite_and_no_error(curves):
    found = curves([Scalars(0, 0.0, (("large", 1e300), ("small", 1e-300), ("minus", -1e300)))])
    assert [found[tag][0][2] for tag in ("large", "small", "minus")] == [math.inf, 0.0, -math.inf]


@pytest.mark.parametrize(
    ("tags", "steps"),
    [(300, 20), (20, 1_000), pytest.param(300, 1_000, marks=pytest.mark.nightly)],
)
def test_steps_with_many_values_and_many_steps_are_all_there(tags, steps, curves):
    scalars_of_steps = [
        Scalars(
            step, step / 2, tuple((f"tag/{position}", position + step) for position in range(tags))
        )
        for step in range(0, 2 * steps, 2)
    ]
    found = curves(scalars_of_steps)
    assert len(found) == tags
    last = tags - 1
    assert found[f"tag/{last}"] == [
        (step, step / 2, last + step) for step in range(0, 2 * steps, 2)
    ]


@settings(deadline=None)
@given(st.lists(st.binary(min_size=4, max_size=50), min_size=1, max_size=5))
def test_checksums_are_those_of_tensorboard(records):
    assert _checksums(records) == [masked_crc32c(record) for record in records]


def test_files_are_the_same_each_time(tmp_path, run_report):
    files = [tmp_path / name for name in "ab"]
    for file in files:
        write_events(scalars(run_report), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_without_tensorboard_one_line_tells_what_to_do(monkeypatch):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("tensorboard"):
            raise ImportError
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(GradscopeError, match="which is not installed") as raised:
        check_tensorboard()
    assert raised.value.help == "pip install tensorboard"
