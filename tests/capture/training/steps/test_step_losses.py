"""The loss of a step, as a script knows its own."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from gradscope.analysis.training_run import training_run
from gradscope.comparison.comparison import compare
from gradscope.comparison.side import side_of
from gradscope.comparison.tolerance import Tolerance
from gradscope.export.scalars import STEPS
from gradscope.report.brief import brief_text
from gradscope.report.documents.comparison_phrasing import loss_notes
from gradscope.report.documents.run_phrasing import curves_note
from gradscope.report.html.charts.comparison.curves import compared_curves
from gradscope.report.number_format import figure
from gradscope.session.report import Report
from tests.nightly import some_on_push


def trained(own, *, parts=4, divided=1, reduction="mean", kept=None):
    """Return a loop that adds its own loss of each step to a list."""

    def loop():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            losses = []
            for _ in range(kept if kept is not None and step == 2 else parts):
                x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
                loss = cross_entropy(model(x), y, reduction=reduction)
                losses.append(loss.item())
                if divided > 1:
                    loss = loss / divided
                loss.backward()
            optimizer.step()
            own.append(losses)

    return loop


def mean(losses):
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize(
    ("options", "expected", "text"),
    some_on_push(
        [
            ({"parts": 1}, mean, ""),
            ({}, mean, "loss: mean over 4 micro-batches"),
            ({"divided": 4}, mean, "loss: mean over 4 micro-batches"),
            ({"divided": 4, "kept": 1}, mean, "loss: mean over 4 micro-batches"),
            ({"reduction": "sum"}, math.fsum, "loss: sum of 4 passes"),
            (
                {"parts": 1, "divided": 8},
                lambda losses: mean(losses) / 8,
                "loss: as passed to backward(), divided by 8",
            ),
        ],
        3,
    ),
    ids=["parts", "micro-batches", "divided", "kept", "summed", "divided again"],
)
def test_the_loss_of_a_step_is_that_of_its_micro_batches(run, options, expected, text):
    own = []
    recording = run(trained(own, **options)).recording
    found = training_run(recording)
    assert [one.loss for one in found.steps] == pytest.approx([expected(one) for one in own])
    assert curves_note(found) == text
    side = side_of(0, "a.gradscope", Report.from_recording(recording), {0, 1, 2})
    assert side.loss == found.steps[-1].loss


def test_losses_of_several_statements_are_added_up(run):
    own = []

    def loop():
        one, two = nn.Linear(4, 3), nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            x = torch.randn(5, 4)
            first = cross_entropy(one(x), torch.randint(0, 3, (5,)))
            first.backward()
            second = mse_loss(two(x), torch.randn(5, 1))
            second.backward()
            optimizer.step()
            own.append(first.item() + second.item())

    found = training_run(run(loop).recording)
    assert [one.loss for one in found.steps] == pytest.approx(own)
    assert found.loss_text == "sum of 2 losses"


def test_parts_of_one_forward_are_added_up(run):
    own = []

    def loop():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            losses = model(torch.randn(5, 4)).square().mean(dim=0)
            for loss in losses:
                loss.backward(retain_graph=True)
            optimizer.step()
            own.append(losses.sum().item())

    found = training_run(run(loop).recording)
    assert [one.loss for one in found.steps] == pytest.approx(own)
    assert found.loss_text == "sum of 3 passes"


def test_all_views_tell_the_same_loss(run):
    reports = [
        Report.from_recording(run(trained([], parts=parts, divided=parts)).recording)
        for parts in (1, 4, 4)
    ]
    mixed = compare([("a", reports[0]), ("b", reports[1])], Tolerance())
    alike = compare([("b", reports[1]), ("c", reports[2])], Tolerance())
    assert list(loss_notes(mixed)) == ["loss: A of one backward, B mean over 4 micro-batches"]
    assert list(loss_notes(alike)) == ["loss: mean over 4 micro-batches"]
    last = reports[1].training_run.steps[-1].loss
    (curve,) = [one for one in alike.curves if one.kind == "loss"]
    assert curve.sides[0].values[-1] == alike.sides[0].loss == last
    loss = [name for name, _ in STEPS.columns].index("loss")
    assert [row[loss] for row in STEPS.rows(reports[1])][-1] == last
    assert "Loss: mean over 4 micro-batches." in compared_curves(alike).caption
    assert f"loss {figure(reports[1].training_run.steps[0].loss)} → {figure(last)}" in brief_text(
        reports[1]
    )
