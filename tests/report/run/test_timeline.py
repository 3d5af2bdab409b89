"""Steps as pictures: what is usual, what is not, how often and where first."""

import math

import pytest

from gradscope.report.documents.run_phrasing import pattern_text
from gradscope.report.page import UNICODE, in_ascii
from tests.report.run.conftest import accumulation, adversarial
from tests.rules.accumulation.runs import Run

X = UNICODE.times


def told(run, optimizer=0):
    return [
        (pattern.count, pattern_text(pattern), pattern.first)
        for pattern in run.patterns
        if pattern.optimizer == optimizer
    ]


def single(**numbers):
    run = Run()
    weights = run.model("model", 2)
    return run, weights, run.optimizer(weights)


def test_the_usual_step_comes_first_then_what_differs(run_of):
    usual, last = told(run_of(accumulation()))
    assert usual == (
        11,
        f"(forward → backward) {X}4 → unscale → clip 1.0 (norm 4.00, always cut) → step"
        " → update scale → scheduler → zero",
        0,
    )
    assert last[0] == 1
    assert last[1].startswith(f"(forward → backward) {X}2 → unscale")
    assert last[2] == 11


def test_the_line_of_an_unusual_step_is_told(run_of):
    run, weights, sgd = single()
    for turn in range(6):
        if turn != 4:
            run.backward(weights, line=5)
        run.step(sgd, line=6 if turn != 4 else 30)
    usual, unusual = run_of(run.recording()).patterns
    assert (usual.is_typical, usual.site.line) == (True, 6)
    assert (unusual.is_typical, unusual.site.line, unusual.first) == (False, 30, 4)


def test_each_optimizer_has_its_own_usual_step(run_of):
    run = run_of(adversarial())
    names = [row.name for row in run.optimizers]
    assert names == ["opt_c", "opt_g", "opt_scale"]
    assert told(run, 0) == [(20, f"zero → (forward → backward) {X}2 → step", 0)]
    assert told(run, 1) == [(10, "zero → forward → backward → step", 2)]
    assert told(run, 2) == [(2, "step", 15)]
    assert [row.steps for row in run.optimizers] == [20, 10, 2]


def test_zeroing_another_optimizers_gradients_is_named(run_of):
    run = Run()
    one, other = run.model("a", 1), run.model("b", 1)
    first, second = run.optimizer(one, name="opt_a"), run.optimizer(other, name="opt_b")
    for _ in range(3):
        run.zero(first, line=4)
        run.zero(second, line=5)
        run.backward(one + other, line=6)
        run.step(first, line=7)
        run.step(second, line=8)
    found = run_of(run.recording())
    assert told(found, 0) == [(3, "zero → zero opt_b → backward → step", 0)]
    assert told(found, 1) == [(3, "step", 1)]


def test_closures_called_a_varying_number_of_times_are_one_picture(run_of):
    run, weights, lbfgs = single()
    for turn in range(12):
        for _ in range(2 + turn % 6):
            run.zero(lbfgs, line=4)
            run.backward(weights, line=5)
        run.step(lbfgs, line=6)
    assert told(run_of(run.recording())) == [(12, f"(zero → backward) {X}2…7 → step", 0)]


@pytest.mark.parametrize(
    ("limit", "written"),
    [
        (1.0, "1.0 (norm 2.00, cut)"),
        (0.5, "0.5 (norm 2.00, cut)"),
        (math.inf, "inf (norm 2.00, not cut)"),
        (0.10000000149, "0.1 (norm 2.00, cut)"),
    ],
)
def test_limits_are_written_as_in_the_script(limit, written, run_of):
    run, weights, sgd = single()
    run.backward(weights, line=4)
    run.event("clip-norm", 5, max_norm=limit, norm=2.0)
    run.step(sgd, line=6)
    assert told(run_of(run.recording()))[0][1] == f"backward → clip {written} → step"


def test_limits_that_are_computed_anew_are_no_part_of_the_picture(run_of):
    run, weights, sgd = single()
    for turn in range(9):
        run.backward(weights, line=4)
        run.event("clip-norm", 5, max_norm=1.0 + turn / 10, norm=2.0)
        run.step(sgd, line=6)
    assert told(run_of(run.recording())) == [
        (9, "backward → clip (norm 2.00, always cut) → step", 0)
    ]


def test_norms_that_are_not_finite_are_counted_beside_the_median(run_of):
    run, weights, sgd = single()
    for norm in (1.0, math.nan, 3.0, 2.0, math.inf):
        run.backward(weights, line=4)
        run.event("clip-norm", 5, max_norm=1.0, norm=norm)
        run.step(sgd, line=6)
    (pattern,) = told(run_of(run.recording()))
    assert pattern[1] == "backward → clip 1.0 (norm 2.00, cut 2 of 3, 2 non-finite) → step"


@pytest.mark.parametrize(
    ("limit", "told_of"), [(0.5, "always cut"), (1.0, "cut 4 of 5"), (4.5, "cut 1 of 5")]
)
def test_it_says_how_often_a_clip_cuts(limit, told_of, run_of):
    run, weights, sgd = single()
    for norm in (1.0, 2.0, 3.0, 4.0, 5.0):
        run.backward(weights, line=4)
        run.event("clip-norm", 5, max_norm=limit, norm=norm)
        run.step(sgd, line=6)
    (pattern,) = told(run_of(run.recording()))
    assert pattern[1] == f"backward → clip {limit} (norm 3.00, {told_of}) → step"


def test_words_for_what_is_not_a_call_of_an_optimizer(run_of):
    run, weights, sgd = single()
    run.zero(weights, line=3, subject="outside")
    run.backward(weights, line=4, create=1)
    run.event("grad", 5, inputs=1, create=0)
    run.event("clip-value", 6, clip_value=0.5)
    run.event("scaler-step", 7, skipped=1, found_inf=1)
    run.event("anything-new", 8)
    run.step(sgd, line=9, manual=1)
    assert told(run_of(run.recording()))[0][1] == (
        "zero by hand → backward with create_graph → autograd.grad → clip values 0.5"
        " → skipped step → anything-new → step"
    )


def test_a_last_step_that_ends_sooner_is_no_unusual_one(run_of):
    run, weights, sgd = single()
    for turn in range(4):
        run.backward(weights, line=4)
        run.step(sgd, line=5)
        if turn < 3:
            run.event("scheduler", 6, optimizer=sgd)
            run.zero(sgd, line=7)
    usual = "backward → step → scheduler → zero"
    assert told(run_of(run.recording())) == [(4, usual, 0)]


def test_a_last_step_that_goes_another_way_is_unusual(run_of):
    run, weights, sgd = single()
    for turn in range(4):
        for _ in range(2 if turn < 3 else 1):
            run.backward(weights, line=4)
        run.step(sgd, line=5)
    assert [count for count, *_ in told(run_of(run.recording()))] == [3, 1]


def test_modes_and_epochs_are_no_part_of_a_step(run_of):
    run, weights, sgd = single()
    for turn in range(4):
        if turn == 2:
            run.event("epoch", 2, batches=2)
            run.event("mode", 3, eval=1)
        run.backward(weights, line=4)
        run.step(sgd, line=5)
    assert told(run_of(run.recording())) == [(4, "backward → step", 0)]


def test_a_step_of_very_many_moments_is_shortened(run_of):
    run, _, sgd = single()
    for turn in range(40):
        run.event(f"kind{turn}", 4)
    run.step(sgd, line=5)
    text = told(run_of(run.recording()))[0][1]
    assert text.startswith("kind0 → kind1 →")
    assert text.endswith("… 26 more → step")


def test_pictures_in_ascii(run_of):
    (pattern, _) = run_of(accumulation()).patterns
    assert in_ascii(pattern_text(pattern)).startswith("(forward -> backward) x4 -> unscale")
