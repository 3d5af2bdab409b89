"""GS713: the difference of a tensor and itself, and estimators without their detach."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))


class Coder(nn.Module):
    """An encoder, codes beside it, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 6)
        self.codes = nn.Parameter(torch.randn(4))


def quantised(join):
    def loss(model, x):
        z = model.encoder(x)
        q = model.codes.expand_as(z)
        commitment = (z - q.detach()).square().mean()
        return (model.decoder(join(z, q)) - x).square().mean() + 0.1 * commitment

    return loss


def policy(ratio):
    def loss(model, x):
        new = model.encoder(x).log_softmax(1)[:, 0]
        return model.decoder(model.codes).square().mean() - (ratio(new) * x[:, 0]).mean()

    return loss


def weighted(weight):
    """Return a loss with two terms, the second one with an adaptive weight."""

    def loss(model, x):
        first = (model.decoder(model.codes) - x).square().mean()
        second = model.encoder(x).square().mean()
        return first + weight(first, second) * second

    return loss


def learns(loss, scaled=0.1):
    """Return a loss with a term that gives all parameters a gradient in any case."""

    def total(model, batch):
        pulls = [(p - 0.5).square().sum() for p in model.parameters()]
        return loss(model, batch) + scaled * sum(pulls)

    return total


SICK = {
    "the logarithms are one tensor": (policy(lambda new: (new - new).exp()), 2),
    "the probabilities are one tensor": (policy(lambda new: new / new), 2),
    "z + (q - z)": (quantised(lambda z, q: z + (q - z)), 2),
    "(q - z) + z": (quantised(lambda z, q: (q - z) + z), 2),
    "(a / b) * b": (weighted(lambda a, b: a / b), 2),
    "(a / (b + epsilon)) * b": (weighted(lambda a, b: a / (b + 1e-6)), 2),
    "(a / b.clamp()) * b": (weighted(lambda a, b: a / b.clamp(min=1e-6)), 2),
}

HEALTHY = {
    "the old one is detached": policy(lambda new: (new - new.detach()).exp()),
    "the mean is subtracted": policy(lambda new: (new - new.mean()).exp()),
    "z + (q - z).detach()": quantised(lambda z, q: z + (q - z).detach()),
    "z + (z - q)": quantised(lambda z, q: z + (z - q)),
    "interpolation": quantised(lambda z, q: z + 0.5 * (q - z)),
    "a residual that was subtracted": quantised(lambda z, q: z + (z.tanh() * q - z)),
    "(a / b).detach() * b": weighted(lambda a, b: (a / b).detach()),
    "(a / b.detach()) * b": weighted(lambda a, b: a / b.detach()),
    "(b / a) * b": weighted(lambda a, b: b / a),
    "(a / (1 + b) ** 2) * b": weighted(lambda a, b: a / (1 + b) ** 2),
    "(a / (a + b)) * b": weighted(lambda a, b: a / (a + b)),
    "pairs": quantised(lambda z, q: (z[None] - z[:, None]).mean(0) + q),
}


def penalised(keep, penalty=lambda p, old: (p - old).square().sum()):
    """Return a loss with a penalty on the distance of the encoder from what was kept of it."""
    kept = {}

    def loss(model, x):
        if not kept:
            kept.update((name, keep(p)) for name, p in model.encoder.named_parameters())
        pulls = [penalty(p, kept[name]) for name, p in model.encoder.named_parameters()]
        return quantised(lambda z, q: z + (q - z).detach())(model, x) + sum(pulls)

    return loss


ANCHORED = {
    "data": penalised(lambda p: p.data),
    "detach": penalised(lambda p: p.detach(), lambda p, old: (0.5 * (p - old) ** 2).sum()),
    "the norm": penalised(lambda p: p.detach(), lambda p, old: torch.norm(p - old)),
    "mse_loss": penalised(lambda p: p.data, nn.functional.mse_loss),
    "a flat view": penalised(
        lambda p: p.data.view(-1), lambda p, old: torch.cat([p.view(-1) - old]).norm()
    ),
    "its own square": penalised(
        lambda p: p.data, lambda p, old: (lambda d: (d * d).sum())(p - old)
    ),
}

APART = {
    "a copy": penalised(lambda p: p.detach().clone()),
    "a difference as it is": penalised(lambda p: p.data, lambda p, old: (p - old).sum()),
    "a part of itself": penalised(lambda p: p.data[:1], lambda p, old: (p - old).square().sum()),
    "an exponential": penalised(lambda p: p.data, lambda p, old: (p - old).exp().sum()),
}


def told(findings):
    return [one for one in findings if one.rule == "GS713"]


@pytest.mark.parametrize("name", some_on_push(SICK, 2))
def test_what_cancels_is_an_error(findings_of, name):
    loss, parameters = SICK[name]
    (found,) = told(findings_of(Coder(), X, learns(loss)))
    assert found.severity == "error"
    assert set(found.parameters) == {"encoder.weight", "encoder.bias"}
    assert found.count == parameters


@pytest.mark.parametrize("name", some_on_push(HEALTHY, 4))
def test_what_is_detached_or_another_tensor_is_fine(findings_of, name):
    assert told(findings_of(Coder(), X, learns(HEALTHY[name]))) == []


@pytest.mark.parametrize("name", some_on_push(ANCHORED, 3))
def test_a_penalty_on_the_distance_from_own_memory_is_an_error(findings_of, name):
    (found,) = told(findings_of(Coder(), X, ANCHORED[name]))
    assert "shares its memory" in found.message
    assert set(found.parameters) == {"encoder.weight", "encoder.bias"}


@pytest.mark.parametrize("name", some_on_push(APART, 2))
def test_a_penalty_on_the_distance_from_a_copy_is_fine(findings_of, name):
    assert told(findings_of(Coder(), X, APART[name])) == []


def test_a_first_inner_step_that_starts_from_the_weights_is_fine(findings_of):
    def loss(model, x):
        fast = model.encoder.weight
        for _ in range(2):
            near = (fast - model.encoder.weight.detach()).square().sum()
            inner = (x @ fast.t()).square().mean() + near
            (slope,) = torch.autograd.grad(inner, fast, create_graph=True)
            fast = fast - 0.1 * slope
        return (model.decoder(x @ fast.t()) - x).square().mean() + near

    assert told(findings_of(Coder(), X, loss)) == []


def test_a_difference_that_no_parameter_is_behind_is_fine(findings_of):
    def loss(model, x):
        x = x.clone().requires_grad_()
        return model.decoder(model.encoder(x) + (x - x).sum()).square().mean()

    assert told(findings_of(Coder(), X, learns(loss))) == []
