"""Training stops at the first step with a problem, and that step is judged."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.recording_index import ended_by, first_step
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from tests.training.looping import looped, seen_in, watched

X, Y = torch.linspace(-1, 1, 24).view(8, 3), torch.arange(8) % 2


class Logarithm(nn.Module):
    """Its weight goes down by 0.1 a step, and the logarithm of what is below zero is NaN."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.35))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.weight.log() + self.norm(x).sum()


def down(model, batch):
    output = model(batch)
    return model.weight + 0 * output


def found_in(recording, code):
    return [one for one in judge(recording).findings if one.rule == code]


def test_nan_is_judged_where_it_comes_first():
    model, other = Logarithm(), Logarithm()
    expected = looped(other, [X], down, torch.optim.SGD(other.parameters(), lr=0.1), 4)
    assert [math.isnan(loss) for loss in expected.losses] == [False] * 4 + [True]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recording = watched(model, None, down, optimizer, batch=X, steps=50, probe_steps=1)
    seen = seen_in(recording)
    assert seen.losses == pytest.approx(expected.losses, rel=0, nan_ok=True)
    for norms, others in zip(seen.norms, expected.norms, strict=True):
        assert norms == pytest.approx(others, rel=1e-6, nan_ok=True)
    assert [step.kind for step in recording.steps] == ["training"] * 4 + ["step", "probe"]
    (note,) = (skip for skip in recording.skipped if "training" in skip.what)
    assert (note.what, note.reason) == ("the last 46 of 50 training steps", "the loss is NaN")
    (found,) = found_in(recording, "GS104")
    assert found.step == 4
    assert found.location.source == "return self.weight.log() + self.norm(x).sum()"


def test_gradient_that_is_not_finite_is_trouble_too():
    def loss(model, batch):
        return (model.weight - 0.15).abs().sqrt() + 0 * model.norm(batch).sum()

    model = Logarithm()
    with torch.no_grad():
        model.weight.fill_(0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def closer(_, batch, steps=[0]):  # noqa: B006 - counts the calls
        steps[0] += 1
        if steps[0] == 3:
            model.weight.data.fill_(0.15)
        return loss(model, batch)

    recording = watched(model, None, closer, optimizer, batch=X, steps=9)
    assert first_step(recording).step.index == 2
    assert first_step(recording).step.loss == 0
    assert any(s.reason == "the gradient of 1 parameter is not finite" for s in recording.skipped)
    assert model.weight.item() == 0.25


def test_trouble_at_the_first_step_is_judged_there():
    recording = watched(Logarithm(), None, lambda model, x: model(x) * math.inf, batch=X, steps=5)
    assert first_step(recording).step.index == 0


def test_too_high_a_rate_is_found_where_the_loss_overflows():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss(model, batch):
        return functional.mse_loss(model(batch), batch.sum(1, keepdim=True))

    optimizer = torch.optim.SGD(net.parameters(), lr=5.0)
    assert not judge(watched(net, None, loss, optimizer, batch=X, lr=1e-3)).findings
    recording = watched(net, None, loss, optimizer, batch=X, steps=30)
    expected = looped(net, [X], loss, optimizer, 30).losses
    judged = first_step(recording).step
    assert judged.index == next(i for i, one in enumerate(expected) if not math.isfinite(one))
    findings = judge(recording).findings
    assert findings
    assert {finding.step for finding in findings} == {judged.index}


class Stumbles(nn.Module):
    """Does something else in one of its forwards."""

    def __init__(self, at, stumble):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.at, self.stumble, self.calls = at, stumble, 0

    def forward(self, x):
        self.calls += 1
        hidden = self.head(x).exp()
        return self.stumble(hidden) if self.calls == self.at + 1 else hidden


def cross_entropy(model, batch):
    return functional.cross_entropy(model(batch), Y)


@pytest.mark.parametrize("at", [0, 3])
def test_exception_of_backward_is_judged_at_its_step(at):
    told = []
    model = Stumbles(at, lambda hidden: hidden.mul_(2))
    recording = watched(model, None, cross_entropy, batch=X, steps=9, tell=told.append)
    (error,) = recording.evidence_of(AutogradErrorRecord)
    assert error.step == at
    assert ended_by(recording) == error
    assert [step.kind for step in recording.steps] == ["training"] * at + ["step"]
    (found,) = found_in(recording, "GS503")
    assert (found.severity, found.step) == ("error", at)
    (shown,) = told
    assert shown.what.startswith("after 3 optimizer steps: backward failed" if at else "backward")
    assert Report.from_recording(recording).summary.unknown == 2


def test_exception_of_a_probing_step_is_none_of_the_judged_one():
    model = Stumbles(4, lambda hidden: hidden.mul_(2))
    recording = watched(model, None, cross_entropy, batch=X, steps=3, probe_steps=0)
    assert not recording.evidence_of(AutogradErrorRecord)
    calls = model.calls
    assert calls == 0, "attributes are put back too"


def test_exception_of_the_forward_is_the_users_and_says_when():
    def stumble(hidden):
        raise ZeroDivisionError

    with pytest.raises(UserCodeError, match=r"^after 3 optimizer steps: ") as caught:
        watched(Stumbles(3, stumble), None, cross_entropy, batch=X, steps=9)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def mean(model, batch):
    return model(batch).mean()


def test_batch_that_does_not_fit_is_reported_with_its_step():
    batches = [X, X, torch.ones(2, 5)]
    with pytest.raises(UserCodeError, match=r"^after 2 optimizer steps: .*float32\[2,5\]"):
        watched(nn.Linear(3, 1), batches, mean, steps=3)


def test_loader_that_raises_is_reported_with_its_step():
    def batches():
        yield X
        yield 1 / 0

    with pytest.raises(UserCodeError, match=r"^after 1 optimizer step: reading the next batch of"):
        watched(nn.Linear(3, 1), batches(), mean, steps=3)


def test_empty_batch_is_judged():
    recording = watched(nn.Linear(3, 1), [X, X, X[:0]], mean, steps=5)
    assert first_step(recording).step.index == 2
    assert math.isnan(first_step(recording).step.loss)


def test_optimizer_that_raises_is_the_users():
    class Breaks(torch.optim.SGD):
        def step(self, closure=None):
            raise ZeroDivisionError

    model = nn.Linear(3, 1)
    with pytest.raises(UserCodeError, match=r"Breaks\.step raised"):
        watched(model, None, mean, Breaks(model.parameters(), lr=1.0), batch=X, steps=1)


def test_targets_optimizer_with_a_closure_cannot_make_steps():
    model = nn.Linear(3, 1)
    own = torch.optim.LBFGS(model.parameters())
    with pytest.raises(GradscopeError, match="cannot make steps") as caught:
        watched(model, None, mean, own, batch=X, steps=1)
    assert caught.value.cause == "LBFGS needs a closure for its steps"
    assert watched(model, None, mean, own, batch=X).steps
    named = watched(model, None, mean, own, batch=X, steps=1, optimizer="sgd")
    assert named.target.optimizer.startswith("SGD")


def test_nothing_to_train_ends_training():
    sparse = nn.Linear(3, 1)
    sparse.weight = nn.Parameter(sparse.weight.detach(), requires_grad=False)
    sparse.bias = nn.Parameter(sparse.bias.detach(), requires_grad=False)
    told = []
    recording = watched(sparse, None, mean, batch=X, steps=4, tell=told.append)
    assert told
    assert [step.kind for step in recording.steps] == ["step"]


class Copied(nn.Module):
    """An output layer that is a copy of the embedding, and drifts apart from it."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
        self.head.weight.data = self.table.weight.data.clone()

    def forward(self, x):
        return self.head(self.table(x))


@pytest.mark.parametrize("steps", [0, 4])
def test_what_training_blurs_is_examined_before_it(steps):
    torch.manual_seed(0)
    batch = torch.arange(8)

    def loss(model, batch):
        return functional.cross_entropy(model(batch), batch + 1)

    recording = watched(Copied(), None, loss, batch=batch, steps=steps, probe_steps=1)
    (found,) = found_in(recording, "GS213")
    assert found.step == steps
    assert {node.graph for node in recording.nodes} == {0}
