"""GS312, judged from loops as users write them."""

import pytest

from tests.rules.accumulation.runs import Run

EVAL, BACKWARD = 20, 11


def loop(modes, *, name="model", trained=True, dropout=1, batchnorm=1):
    """A step for each mode: `True` where the model is in eval mode."""
    run = Run()
    weights = run.model("model", 4)
    other = run.model("other", 2)
    sgd = run.optimizer((*weights, *other) if trained else other)
    for in_eval in modes:
        run.zero(sgd, line=10)
        if in_eval:
            numbers = {"eval": 1, "dropout": dropout, "batchnorm": batchnorm}
            run.event("mode", EVAL, subject=name, **numbers)
        run.backward((*weights, *other), line=BACKWARD)
        run.step(sgd, line=12)
    return run


def test_an_evaluation_that_is_never_undone_is_found_at_the_eval():
    (found,) = loop([False] * 5 + [True] * 15).findings("GS312")
    assert (found.severity, found.location.line) == ("warning", EVAL)
    assert (found.step, found.count) == (5, 15)
    assert [position.line for position in found.related] == [BACKWARD]
    assert "from step 6 on" in found.message
    assert all(name.startswith("model.") for name in found.parameters)


def test_a_model_that_comes_in_eval_mode_is_found():
    (found,) = loop([True] * 5).findings("GS312")
    assert "from step" not in found.message


@pytest.mark.parametrize(
    ("eval_steps", "is_found"), [(0, False), (1, False), (9, False), (10, True), (20, True)]
)
def test_half_of_the_steps_is_the_limit(eval_steps, is_found):
    modes = [False] * (20 - eval_steps) + [True] * eval_steps
    assert bool(loop(modes).findings("GS312")) is is_found


def test_what_is_switched_off_is_named():
    (found,) = loop([True] * 5, dropout=0, batchnorm=2).findings("GS312")
    assert "batch norm" in found.message and "dropout" not in found.message


@pytest.mark.parametrize(
    "chosen",
    [{"dropout": 0, "batchnorm": 0}, {"trained": False}, {"name": "vgg"}],
    ids=["nothing depends on the mode", "not trained", "another model, as of a perceptual loss"],
)
def test_models_that_may_be_in_eval_mode(chosen):
    assert not loop([True] * 10, **chosen).findings("GS312")


def test_an_attack_in_eval_mode_before_training_is_fine():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(10):
        run.event("mode", EVAL, subject="model", eval=1, dropout=1, batchnorm=0)
        run.backward(weights, line=10)
        run.zero(sgd, line=11)
        run.backward(weights, line=12)
        run.step(sgd, line=13)
        run.zero(sgd, line=14)
    assert not run.findings("GS312")
