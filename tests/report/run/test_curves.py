"""Curves of the training, and what is said of them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.columns import Columns, curves
from gradscope.analysis.layers import largest_norms
from gradscope.recording.norm_table import NormTable
from gradscope.report.documents.run_phrasing import course_text, duration, extreme_text
from tests.report.run.conftest import adversarial, network, plain

# Norms of the parameters of each step: not every step measures the same ones.
STEPS = st.lists(
    st.dictionaries(
        st.integers(0, 3),
        st.none() | st.sampled_from([0.0, 1.0, math.inf, math.nan]) | st.floats(0, 10),
        max_size=4,
    ),
    min_size=1,
    max_size=12,
)


def drawn(recording, run_of, width=80, optimizers=4):
    run = run_of(recording)
    return curves(run, Columns.over(run, width), optimizers)


def with_rates(recording, rates):
    """Return the recording with the learning rate of each step."""

    def changed(event):
        if event.kind != "step":
            return event
        numbers = {**dict(event.numbers), "lr": rates[event.step]}
        return replace(event, numbers=tuple(numbers.items()))

    return replace(recording, events=tuple(map(changed, recording.events)))


def told(curve):
    return course_text(curve.course), extreme_text(curve)


def test_a_learning_rate_that_stays_is_no_curve(run_of):
    kinds = [curve.kind for curve in drawn(plain(4), run_of)]
    assert kinds == ["loss", "norm"]


def test_a_learning_rate_that_changes_is_a_curve(run_of):
    *_, rate = drawn(with_rates(plain(4), [0.0, 0.5, 0.3, 0.1]), run_of)
    assert rate.kind == "rate"
    assert rate.course.cells == (0.0, 0.5, 0.3, 0.1)
    assert told(rate) == ("0 → 0.100", "largest 0.500 at step 1")


def test_each_optimizer_has_curves_of_its_own(run_of):
    found = drawn(adversarial(), run_of)
    assert [(curve.optimizer, curve.kind) for curve in found] == [
        (0, "loss"),
        (0, "norm"),
        (1, "loss"),
        (1, "norm"),
        (2, "norm"),
    ]
    assert {curve.optimizer for curve in drawn(adversarial(), run_of, optimizers=1)} == {0}


def test_updates_are_a_curve_where_they_were_measured(run_of):
    (*_, update) = drawn(network(3, lambda step, block: 1.0), run_of)
    assert update.kind == "update"
    assert update.course.cells == pytest.approx((0.001,) * 3)


def test_an_extreme_that_looks_like_an_end_is_not_told(run_of):
    losses = [1.0, 0.5, 0.4999, 0.5]
    recording = plain(4)
    steps = [replace(step, loss=losses[step.index]) for step in recording.steps]
    loss, *_ = drawn(replace(recording, steps=tuple(steps)), run_of)
    assert told(loss) == ("1.00 → 0.500", "")


def test_the_lowest_loss_between_the_ends_is_told(run_of):
    losses = [1.0, 0.2, 0.7]
    recording = plain(3)
    steps = [replace(step, loss=losses[step.index]) for step in recording.steps]
    loss, *_ = drawn(replace(recording, steps=tuple(steps)), run_of)
    assert told(loss) == ("1.00 → 0.700", "lowest 0.200 at step 1")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.4217, "0.422 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (192.4, "3 min 12 s"),
        (3599.6, "1 h 00 min"),
        (7500.0, "2 h 05 min"),
        (400000.0, "111 h 07 min"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def clipped(recording, norm, after):
    """Return the recording with a clip before each step."""
    events = []
    for event in recording.events:
        if event.kind == "step":
            numbers = {"max_norm": after, "norm": norm, "fresh": 1.0, "parameters": 1.0}
            events.append(replace(event, kind="clip-norm", numbers=tuple(numbers.items())))
            event = replace(event, order=event.order + 1)
            event = replace(event, numbers=tuple({**dict(event.numbers), "norm": after}.items()))
        events.append(event)
    return replace(recording, events=tuple(events))


def test_norm_before_the_clip_is_a_curve_of_its_own_where_something_is_cut(run_of):
    found = {curve.kind: curve for curve in drawn(clipped(plain(4), 40.0, 1.0), run_of)}
    assert found["raw"].course.cells == (40.0,) * 4
    assert found["norm"].course.cells == (1.0,) * 4
    found = {curve.kind for curve in drawn(clipped(plain(4), 1.0, 1.0), run_of)}
    assert found == {"loss", "norm"}


def table(steps):
    rows = [
        (step, parameter, "gradient", -1 if norm is None else norm, 1, -1)
        for step, norms in enumerate(steps)
        for parameter, norm in norms.items()
    ]
    return NormTable.of_rows([rows] if rows else [], dict.fromkeys(range(4), 8))


def equal(one, other):
    return repr(one) == repr(other)


@given(steps=STEPS, count=st.integers(1, 12), left_out=st.sets(st.integers(0, 11)))
def test_largest_norms_by_column(steps, count, left_out):
    columns = Columns([n for n in range(len(steps)) if n not in left_out] or [0], count)
    plain = {
        parameter: columns.largest(
            [(step, norms[parameter]) for step, norms in enumerate(steps) if parameter in norms]
        )
        for parameter in range(4)
    }
    found = largest_norms(table(steps), columns)
    nothing = (None,) * columns.count
    assert all(equal(found.get(parameter, nothing), plain[parameter]) for parameter in plain)


def test_parameters_that_were_never_measured_are_left_out():
    assert largest_norms(table([{1: 2.0}, {1: None}]), Columns([0, 1], 2)) == {1: (2.0, None)}
