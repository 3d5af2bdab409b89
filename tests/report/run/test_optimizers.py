"""Which optimizers a reader is told of."""

from dataclasses import replace

import pytest

from tests.report.run.conftest import shown
from tests.rules.accumulation.runs import Run


def trained(optimizers, weights, run, steps=2):
    for optimizer in optimizers:
        for _ in range(steps):
            run.zero(optimizer, line=8)
            run.backward(weights, line=9)
            run.step(optimizer, line=10)


def rows(run_of, recording):
    return [(row.name, row.steps, row.parameters, row.made) for row in run_of(recording).optimizers]


def test_one_made_anew_in_each_epoch_is_one(run_of):
    run = Run()
    weights = run.model("model", 3)
    for _ in range(3):
        trained([run.optimizer(weights, "Adam", line=5)], weights, run)
    recording = run.recording()
    assert rows(run_of, recording) == [("optimizer", 6, 3, 3)]
    (pattern,) = run_of(recording).patterns
    assert pattern.count == 6
    assert "Adam(lr=0.1), train.py:5, made 3 times\n" in shown(recording)


def test_one_for_each_parameter_is_one(run_of):
    run = Run()
    weights = run.model("model", 9)
    made = [run.optimizer([weight], "SGD", line=5, name="SGD") for weight in weights]
    trained(made, weights, run, steps=1)
    assert rows(run_of, run.recording()) == [("", 9, 9, 9)]


def test_two_that_a_function_made_are_two(run_of):
    run = Run()
    generator, critic = run.model("generator", 2), run.model("critic", 2)
    for weights in (generator, critic):
        trained([run.optimizer(weights, "Adam", line=5, name="Adam")], weights, run)
    assert rows(run_of, run.recording()) == [("", 2, 2, 1), ("", 2, 2, 1)]


def test_one_of_another_name_is_another(run_of):
    run = Run()
    weights = run.model("model", 2)
    warm, main = (run.optimizer(weights, "Adam", line=5, name=name) for name in ("warm", "main"))
    trained([warm, main], weights, run)
    assert [name for name, *_ in rows(run_of, run.recording())] == ["warm", "main"]


def test_one_without_a_step_stands_last(run_of):
    run = Run()
    weights = run.model("model", 2)
    run.optimizer(weights, "Adam", line=4, name="unused")
    trained([run.optimizer(weights, "SGD", line=5, name="used")], weights, run)
    recording = run.recording()
    assert rows(run_of, recording) == [("used", 2, 2, 1), ("unused", 0, 2, 1)]
    assert "unused Adam, train.py:4: no step on 2 parameters" in shown(recording)


@pytest.mark.parametrize("name", ["model", "model#{}"])
def test_models_made_anew_for_each_fold_are_one_row(name):
    run = Run()
    for fold in range(5):
        weights = run.model(name.format(fold + 1), 2)
        trained([run.optimizer(weights, "SGD", line=5)], weights, run)
    (row,) = [line for line in shown(run.recording()).splitlines() if line.startswith("model ×")]  # noqa: RUF001
    assert row.split() == ["model", "×5", "Net", "▅" * 10, "1.41", "→", "1.41"]  # noqa: RUF001


def test_skipped_steps_of_an_optimizer_that_never_made_one(run_of):
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights, "SGD", line=5)
    for _ in range(3):
        run.backward(weights, line=6)
        run.event("scaler-step", 7, optimizer=sgd, skipped=1)
    recording = run.recording()
    assert rows(run_of, recording) == [("optimizer", 0, 2, 1)]
    assert "3 ×  backward → skipped step" in shown(recording)  # noqa: RUF001


def test_steps_of_an_optimizer_without_a_record_are_told_by_their_class(run_of):
    run = Run()
    weights = run.model("model", 2)
    trained([run.optimizer(weights, "SGD", line=5)], weights, run)
    recording = replace(run.recording(), evidence=())
    assert [(row.title, row.steps) for row in run_of(recording).optimizers] == [("SGD(lr=0.1)", 2)]
    assert "2 ×  zero → backward → step" in shown(recording)  # noqa: RUF001
