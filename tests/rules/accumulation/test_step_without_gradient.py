"""GS306, judged from loops as users write them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from gradscope.rules.engine import judge
from tests.rules import watching
from tests.rules.accumulation.runs import Run


def test_an_optimizer_of_other_parameters_is_an_error_at_its_step():
    run = Run()
    model, copy = run.model("model", 4), run.model("copy", 4)
    sgd = run.optimizer(copy, line=3)
    for _ in range(5):
        run.zero(model, line=10, subject="model")
        run.backward(model, line=11)
        run.step(sgd, line=12)
    (found,) = run.findings("GS306")
    assert (found.severity, found.location.line, found.count) == ("error", 12, 5)
    assert [position.line for position in found.related] == [3]
    assert all(name.startswith("copy.") for name in found.parameters)


def test_gradients_that_are_all_zero_are_none_either():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    run.backward(weights, line=11)
    run.step(sgd, line=9)
    for _ in range(30):
        run.zero(sgd, line=10, set_to_none=False)
        run.step(sgd, line=12)
    (found,) = run.findings("GS306")
    assert (found.location.line, found.count) == (12, 30)


def trained(steps: int, empty: int) -> Run:
    """A loop whose first steps find everything frozen."""
    run = Run()
    weights, head = run.model("model", 4), run.model("head", 2)
    backbone, sgd = run.optimizer(weights), run.optimizer(head)
    for step in range(steps):
        reached = (*weights, *head) if step >= empty else head
        run.backward(reached, line=11)
        run.step(backbone, line=12)
        run.step(sgd, line=13)
        run.zero(backbone, line=14)
        run.zero(sgd, line=15)
    return run


@pytest.mark.parametrize(("empty", "severities"), [(0, []), (1, []), (9, []), (10, ["error"])])
def test_a_backbone_that_is_trained_later_is_fine(empty, severities):
    assert [one.severity for one in trained(10, empty).findings("GS306")] == severities


def test_a_step_against_the_warning_of_the_scheduler_is_fine():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    run.step(sgd, line=5)
    for _ in range(5):
        run.zero(sgd, line=10)
        run.backward(weights, line=11)
        run.step(sgd, line=12)
    assert not run.findings("GS306")


def test_an_optimizer_of_frozen_parameters_is_no_business_of_this_rule():
    run = Run()
    weights = run.model("model", 4, requires_grad=False)
    head = run.model("head", 2)
    frozen, sgd = run.optimizer(weights), run.optimizer(head)
    for _ in range(5):
        run.zero(sgd, line=10)
        run.backward(head, line=11)
        run.step(sgd, line=12)
        run.step(frozen, line=13)
    assert not run.findings("GS306")


def test_stepping_twice_for_each_backward_is_a_warning_at_the_second_step():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(5):
        run.zero(sgd, line=10)
        run.backward(weights, line=11)
        run.step(sgd, line=12)
        run.step(sgd, line=13)
    (found,) = run.findings("GS306")
    assert (found.severity, found.location.line) == ("warning", 13)


def test_two_optimizers_that_share_an_encoder_are_told_of_that_alone():
    run = Run()
    encoder, one, two = run.model("encoder", 4), run.model("one", 1), run.model("two", 1)
    first, second = run.optimizer((*encoder, *one), line=3), run.optimizer((*encoder, *two), line=4)
    for _ in range(5):
        run.zero(first, line=9)
        run.zero(second, line=10)
        run.backward((*encoder, *one, *two), line=11)
        run.step(first, line=12)
        run.step(second, line=13)
    (found,) = run.findings("GS215")
    assert len(found.parameters) == len(encoder)


def test_a_loop_that_steps_first_is_a_warning():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        run.step(sgd, line=10)
        run.zero(sgd, line=11)
        run.backward(weights, line=12)
    (found,) = run.findings("GS306")
    assert (found.severity, found.location.line, found.count) == ("warning", 10, 1)
    assert [position.line for position in found.related] == [12, 3]


def test_two_empty_steps_are_the_least():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    run.step(sgd, line=12)
    assert not run.findings("GS306")
    run.step(sgd, line=12)
    assert len(run.findings("GS306")) == 1


def ceasing(steps: int, last: int, *, others: int = 0, passes: bool = True) -> Run:
    """A loop whose last steps find gradients in another model."""
    run = Run()
    model, copy, head = run.model("model", 4), run.model("copy", 4), run.model("head", 2)
    adam = run.optimizer(model, "Adam")
    sgd = run.optimizer(head, line=4) if others else None
    for step in range(steps):
        is_over = step >= steps - last
        run.zero(adam, line=10)
        if not is_over or passes:
            run.backward((*(copy if is_over else model), *head), line=11)
        run.step(adam, line=12)
        if sgd is not None:
            run.step(sgd, line=13)
            run.zero(sgd, line=14)
    return run


@pytest.mark.parametrize(
    ("steps", "last", "severities"),
    [(60, 36, ["error"]), (60, 12, ["error"]), (60, 11, []), (20, 8, ["error"]), (20, 7, [])],
)
def test_a_model_that_is_replaced_midway_leaves_the_last_steps_without(steps, last, severities):
    found = ceasing(steps, last).findings("GS306")
    assert [one.severity for one in found] == severities
    for one in found:
        assert (one.location.line, one.count, one.step) == (12, last, steps - last)


def test_it_is_a_warning_while_others_are_trained():
    (found,) = ceasing(60, 30, others=1).findings("GS306")
    assert (found.severity, found.location.line) == ("warning", 12)


def test_steps_after_the_training_are_no_training():
    assert not ceasing(60, 30, passes=False).findings("GS306")


def test_a_part_that_is_frozen_midway_is_fine():
    run = ceasing(60, 30)
    recording = run.recording()
    stats = [
        replace(one, reach="frozen") if one.step >= 30 and one.parameter < 4 else one
        for one in recording.parameter_stats
    ]
    found = judge(replace(recording, parameter_stats=tuple(stats))).findings
    assert not [one for one in found if one.rule == "GS306"]


def trained_by(tmp_path, made_anew):
    """Train for six steps on what a function makes of the loss."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for _ in range(6):
            loss = model(torch.randn(8, 4)).square().mean()
            sgd.zero_grad()
            made_anew(loss).backward()
            sgd.step()

    return watching.findings_of(train, tmp_path)


@pytest.mark.parametrize(
    "made_anew",
    [
        lambda loss: torch.tensor(loss.item(), requires_grad=True),
        lambda loss: torch.autograd.Variable(loss.data, requires_grad=True),
        lambda loss: loss.detach().requires_grad_(),
    ],
    ids=["tensor", "Variable", "detach"],
)
def test_steps_after_the_backward_of_a_new_leaf_are_a_consequence_of_it(tmp_path, made_anew):
    (found,) = trained_by(tmp_path, made_anew)
    assert found.rule == "GS501"
    assert "made_anew(loss)" in found.location.source or "loss:" in found.location.source
    assert "GS306" in {one.rule for one in found.consequences}


def test_a_loss_with_its_graph_is_fine(tmp_path):
    assert not trained_by(tmp_path, lambda loss: loss)
