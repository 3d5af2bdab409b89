"""GS314, judged from loops as users write them."""

from dataclasses import replace

import pytest

from gradscope.rules.engine import judge
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


def in_epochs(optimizers=3, *, function="run_epoch", rates=(0.1, 0.1, 0.1), steps=(10, 10, 10)):
    """A run of a function that makes an optimizer each time it is called."""
    run = Run()
    weights = run.model("model", 4)
    for position in range(optimizers):
        optimizer = run.optimizer(weights, "Adam", lr=rates[position])
        for _ in range(steps[position]):
            run.zero(optimizer, line=10)
            run.backward(weights, line=11)
            run.step(optimizer, line=12)
    recording = run.recording()
    sites = tuple(replace(site, function=function) for site in recording.sites)
    found = judge(replace(recording, sites=sites)).findings
    return [one for one in found if one.rule == "GS314"]


def test_three_epochs_with_an_optimizer_each_are_enough():
    (found,) = in_epochs()
    assert (found.severity, found.location.line, found.count) == ("warning", 3, 2)


@pytest.mark.parametrize(
    ("function", "severity"),
    [
        ("Client.run_epoch", "note"),
        ("local_update_epoch", "note"),
        ("Server.run_epoch", "warning"),
        ("localize_epoch", "warning"),
    ],
)
def test_clients_of_federated_learning_start_afresh(function, severity):
    (found,) = in_epochs(function=function)
    assert found.severity == severity


def test_two_epochs_are_not():
    assert not in_epochs(2)


@pytest.mark.parametrize("function", ["main", "fit", "train_epochs"])
def test_what_is_not_named_after_an_epoch_may_be_a_stage(function):
    assert not in_epochs(function=function)


def test_stages_differ_in_their_rate_or_their_length():
    assert not in_epochs(rates=(0.1, 0.01, 0.001))
    assert not in_epochs(steps=(10, 20, 10))


def test_a_script_without_an_optimizer_is_fine():
    run = Run()
    weights = run.model("model", 2)
    for _ in range(6):
        run.backward(weights, line=11)
        run.event("step", 12, parameters=2, with_gradient=2, fresh=2, manual=1, norm=1.0)
    assert not [one for one in judge(run.recording()).findings if one.rule == "GS314"]
