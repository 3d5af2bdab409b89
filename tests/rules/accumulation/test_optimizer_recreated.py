"""GS314, judged from loops as users write them."""

import pytest

from tests.rules.accumulation.runs import Run


def loop(optimizers, steps_each, *, class_name="Adam", lines=None, fresh=False):
    """Several optimizers one after the other, each with so many steps."""
    run = Run()
    weights = run.model("model", 4)
    for position in range(optimizers):
        if fresh:
            weights = run.model(f"model{position}", 4)
        line = 3 if lines is None else lines[position]
        optimizer = run.optimizer(weights, class_name, line=line)
        for _ in range(steps_each):
            run.zero(optimizer, line=10)
            run.backward(weights, line=11)
            run.step(optimizer, line=12)
    return run


@pytest.mark.parametrize(
    ("optimizers", "steps_each", "is_found"),
    [(1, 20, False), (2, 10, False), (4, 10, False), (5, 10, True), (2, 1, False), (3, 1, True)],
)
def test_it_takes_many(optimizers, steps_each, is_found):
    found = loop(optimizers, steps_each).findings("GS314")
    assert bool(found) is is_found
    if found:
        assert (found[0].severity, found[0].location.line) == ("warning", 3)
        assert found[0].count == optimizers - 1


def test_sgd_loses_little():
    (found,) = loop(6, 5, class_name="SGD").findings("GS314")
    assert found.severity == "note"


def test_phases_of_training_at_lines_of_their_own_are_fine():
    assert not loop(6, 5, lines=[3, 4, 5, 6, 7, 8]).findings("GS314")


def test_a_new_model_each_time_is_fine():
    """As in cross-validation, and in the inner loops of meta-learning."""
    assert not loop(6, 5, fresh=True).findings("GS314")
