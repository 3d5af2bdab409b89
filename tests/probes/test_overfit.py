"""A training on one batch: the losses of torch's own loop, and a model that is restored."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.losses import Overfit
from gradscope.cli.options import with_optional_values
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.training import OverfitRecord
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(8) % 3


def recorded(model, optimizer=None, *, overfit=30, loss_fn=functional.cross_entropy):
    target = target_from_objects(model, (X, Y), loss_fn, optimizer=optimizer)
    return record(target, trial=Trial(overfit=overfit), eager=False, command="")


def test_losses_are_those_of_a_plain_loop():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    own = copy.deepcopy(model)
    step = torch.optim.SGD(own.parameters(), 0.3, momentum=0.9)
    expected = []
    for _ in range(31):
        loss = functional.cross_entropy(own(X), Y)
        expected.append(loss.item())
        own.zero_grad()
        loss.backward()
        step.step()
    (found,) = recorded(model, optimizer).evidence_of(OverfitRecord)
    assert found.losses == tuple(expected)
    assert found.optimizer == "SGD(lr=0.3)"


def test_movement_is_the_distance_over_the_norm():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    start = [p.detach().clone() for p in model.parameters()]
    own = copy.deepcopy(model)
    step = torch.optim.Adam(own.parameters(), 1e-3)
    for _ in range(30):
        own.zero_grad()
        functional.cross_entropy(own(X), Y).backward()
        step.step()
    (found,) = recorded(model).evidence_of(OverfitRecord)
    for moved, before, after in zip(found.moved, start, own.parameters(), strict=True):
        expected = (after.detach() - before).norm() / before.norm()
        assert moved == pytest.approx(expected.item(), rel=1e-4)


def test_model_and_optimizer_are_restored():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.3))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    recorded(model, optimizer)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert optimizer.state_dict()["state"] == {}
    assert torch.equal(torch.get_rng_state(), state)


def test_training_ends_at_a_hundredth():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3))
    recording = recorded(model, torch.optim.Adam(model.parameters(), 0.05), overfit=500)
    found = Overfit.of(recording)
    assert found.outcome == "learned"
    assert found.record.losses[-1] <= 0.01 * found.record.losses[0] < found.record.losses[-2]
    assert found.still == ()


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x).detach())


def test_parameters_that_do_not_move_are_named():
    found = Overfit.of(recorded(Cut()))
    assert found.still == (0, 1)


def test_too_large_a_rate_diverges():
    model = nn.Linear(4, 3)
    found = Overfit.of(recorded(model, torch.optim.SGD(model.parameters(), 1e6)))
    assert found.outcome == "diverged"


def test_without_the_option_nothing_is_trained():
    recording = recorded(nn.Linear(4, 3), overfit=None)
    assert Overfit.of(recording) is None
    (skipped,) = (one for one in recording.evidence_of(ProbeRecord) if one.name == "overfit")
    assert skipped.skip_reason == "only --overfit trains on the batch"


def outcome_of(losses, learned=0.01):
    steps = len(losses) - 1
    recorded = OverfitRecord(
        wanted=steps, optimizer="", learned=learned, losses=tuple(losses), moved=()
    )

    class Stub:
        def evidence_of(self, kind):
            return [recorded]

    return Overfit.of(Stub())


@pytest.mark.parametrize(
    ("losses", "outcome", "since"),
    [
        ([1.0, 0.5, 0.01], "learned", None),
        ([1.0, 0.5, 0.0101], "still falling", None),
        ([1.0] * 100, "stuck", 0),
        ([1.0, 0.7, *[0.7] * 98], "stuck", 1),
        ([1.0 - 0.009 * step for step in range(100)], "still falling", None),
        ([1.0, float("nan")], "diverged", None),
        ([1.0, 2.0, 2.01], "diverged", None),
        ([1.0, 2.0], "stuck", 0),
        ([-1.0, -2.0, -3.0], "still falling", None),  # a loss may be negative
        ([0.0, 0.0], "learned", None),
    ],
)
def test_outcome(losses, outcome, since):
    found = outcome_of(losses)
    assert (found.outcome, found.since) == (outcome, since)


@pytest.mark.parametrize(
    ("words", "filled"),
    [
        (["inspect", "--overfit", "net.py"], ["inspect", "--overfit", "200", "net.py"]),
        (["inspect", "net.py", "--overfit"], ["inspect", "net.py", "--overfit", "200"]),
        (["inspect", "--overfit", "50", "net.py"], ["inspect", "--overfit", "50", "net.py"]),
        (["inspect", "net.py", "--", "--overfit"], ["inspect", "net.py", "--", "--overfit"]),
        (["run", "train.py", "--overfit"], ["run", "train.py", "--overfit"]),
    ],
)
def test_number_may_be_left_out(words, filled):
    assert with_optional_values(words) == filled
