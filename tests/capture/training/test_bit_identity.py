"""A recorded training gives bit-identical results."""

import copy
import random

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu
from torch.utils.checkpoint import checkpoint

from tests.nightly import some_on_push

STEPS = 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.3)
        self.second = nn.Linear(32, 4)

    def forward(self, x):
        return self.second(self.drop(relu(self.norm(self.first(x)))))


def batch():
    return torch.randn(16, 8), torch.randint(0, 4, (16,))


def plain(make_optimizer, *, set_to_none=True, clip=True):
    def loop():
        model = Net()
        optimizer = make_optimizer(model.parameters())
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        losses = []
        for _ in range(STEPS):
            x, y = batch()
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = cross_entropy(model(x), y)
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        return model, losses

    return loop


def scaled():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
    losses = []
    for step in range(STEPS):
        x, y = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(x), y)
        scaler.scale(loss * (float("inf") if step == 5 else 1)).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, losses


def lbfgs():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x, y = batch()

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    return model, [optimizer.step(closure).detach() for _ in range(STEPS)]


def checkpointed(use_reentrant):
    def loop():
        model, losses = Net(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(STEPS):
            x, y = batch()
            hidden = model.first(x)
            out = checkpoint(
                lambda h: model.second(model.drop(h)), hidden, use_reentrant=use_reentrant
            )
            loss = checkpoint(cross_entropy, out, y, use_reentrant=use_reentrant) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return model, losses

    return loop


def second_order():
    model, losses = Net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        x, y = batch()
        x.requires_grad_()
        loss = cross_entropy(model(x), y)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        optimizer.zero_grad()
        (loss + gradient.square().sum()).backward(retain_graph=True)
        loss.backward(create_graph=True)
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        losses.append(loss.detach())
    return model, losses


def by_hand():
    model, losses = Net(), []
    average = copy.deepcopy(model)
    for _ in range(STEPS):
        x, y = batch()
        loss = cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter, mean in zip(model.parameters(), average.parameters(), strict=True):
                parameter -= 0.1 * parameter.grad
                mean.lerp_(parameter, 0.1)
                parameter.grad.zero_()
        losses.append(loss.detach())
    return model, losses


LOOPS = {
    "sgd": plain(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3)),
    "zeros": plain(lambda p: torch.optim.SGD(p, lr=0.1), set_to_none=False),
    "foreach": plain(lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True)),
    "fused": plain(lambda p: torch.optim.AdamW(p, lr=0.01, fused=True)),
    "rmsprop": plain(lambda p: torch.optim.RMSprop(p, lr=0.01), clip=False),
    "scaled": scaled,
    "lbfgs": lbfgs,
    "checkpoint": checkpointed(False),
    "reentrant checkpoint": checkpointed(True),
    "second order": second_order,
    "by hand": by_hand,
}


def outcome(loop):
    torch.manual_seed(0)
    random.seed(0)
    model, losses = loop()
    weights = [tensor.clone() for tensor in model.state_dict().values()]
    return weights, losses, torch.get_rng_state(), random.getstate()


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("name", some_on_push(LOOPS, 3))
def test_a_watched_training_is_the_same_to_the_last_bit(name, run):
    weights, losses, state, python_state = outcome(LOOPS[name])
    seen = []
    made = run(lambda: seen.append(outcome(LOOPS[name])))
    (watched,) = seen
    for one, other in zip(watched[0] + watched[1], weights + losses, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(watched[2], state)
    assert watched[3] == python_state
    assert len(made.events("backward")) >= STEPS
    assert made.recording.finished
