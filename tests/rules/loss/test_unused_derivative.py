"""GS721: derivatives that a training uses in different ways, or not at all."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from gradscope.capture.step.derivatives import GraphedDerivatives
from gradscope.capture.training.captured_lines import UnusedDerivatives
from tests.nightly import some_on_push
from tests.rules.watching import findings_of

STEPS = 5


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def slope(model, x, **options):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x, **options)[0]


def trained(loss_of):
    """Return a loop that trains by a loss of the model and a batch."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loop():
        for _ in range(STEPS):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()

    return loop


def told(loop, folder):
    return [one for one in findings_of(loop, folder) if one.rule == "GS721"]


def penalty(model, x):
    return (slope(model, x, create_graph=True).norm(dim=1) - 1).square().mean()


def fit(model, x):
    return (model(x) - x[:, :1]).square().mean()


def forgotten_penalty(model, x):
    penalty(model, x)
    return fit(model, x)


def logged_penalty(model, x):
    penalty(model, x).item()
    return fit(model, x)


def adapted(model, x):
    """Return the weights after an inner step."""
    weights = dict(model.named_parameters())
    inner = (functional_call(model, weights, x) - x[:, :1]).square().mean()
    slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
    pairs = zip(weights.items(), slopes, strict=True)
    return {name: weight - 0.1 * one for (name, weight), one in pairs}


def unadapted(model, x):
    adapted(model, x)
    return fit(model, x)


def second_is_forgotten(model, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    torch.autograd.grad(first.sum(), x, create_graph=True)
    return fit(model, x.detach())


SICK = [forgotten_penalty, logged_penalty, unadapted, second_is_forgotten]


@pytest.mark.parametrize("loss_of", some_on_push(SICK, 2))
def test_a_derivative_that_no_loss_depends_on_is_found(tmp_path, loss_of):
    (found,) = told(trained(loss_of), tmp_path)
    assert found.severity == "warning"
    assert "autograd.grad(" in found.location.source
    assert found.count == 1


def weighed_penalty(model, x):
    return fit(model, x) + 0.1 * penalty(model, x)


def outer(model, x):
    return (functional_call(model, adapted(model, x), x) - x[:, :1]).square().mean()


def second_derivative(model, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return fit(model, x) + second.square().mean()


def curvature_is_logged(model, x):
    """Of the product with a vector, only the numbers are wanted."""
    loss = fit(model, x)
    slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    inner = sum(one.sum() for one in slopes)
    torch.autograd.grad(inner, list(model.parameters()), retain_graph=True)
    return loss


def without_a_graph(model, x):
    slope(model, x).norm().item()
    return fit(model, x)


def numbers_alone(model, x):
    slope(model, x, create_graph=True).detach().norm().item()
    return fit(model, x)


def of_a_transform(model, x):
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def inner(weights, row):
        return functional_call(model, weights, row).sum()

    torch.func.vmap(torch.func.grad(inner), (None, 0))(weights, x)
    return fit(model, x)


HEALTHY = [
    weighed_penalty,
    outer,
    second_derivative,
    curvature_is_logged,
    without_a_graph,
    numbers_alone,
    of_a_transform,
]


@pytest.mark.parametrize("loss_of", some_on_push(HEALTHY, {0, 3, 5, 6}))
def test_a_derivative_that_is_used_is_fine(tmp_path, loss_of):
    assert not told(trained(loss_of), tmp_path)


def test_a_derivative_that_is_used_by_a_second_backward_is_fine(tmp_path):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loop():
        for _ in range(STEPS):
            x = torch.randn(8, 4)
            term = penalty(model, x)
            optimizer.zero_grad()
            fit(model, x).backward()
            term.backward()
            optimizer.step()

    assert not told(loop, tmp_path)


def test_where_nothing_learns_the_cut_alone_is_told(tmp_path):
    def cut(model, x):
        weights = {name: one.detach().requires_grad_() for name, one in adapted(model, x).items()}
        return functional_call(model, weights, x).square().mean()

    assert not told(trained(cut), tmp_path)


@pytest.mark.nightly
def test_a_derivative_that_the_next_step_uses_is_fine(tmp_path):
    actor, critic = network(), network()
    steps = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (actor, critic)]

    def loop():
        for _ in range(STEPS):
            x = torch.randn(8, 4)
            term = penalty(critic, x)
            for model, optimizer in zip((actor, critic), steps, strict=True):
                loss = fit(model, x) + (term if model is critic else 0)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    assert not told(loop, tmp_path)


@pytest.mark.nightly
def test_one_step_that_uses_the_derivative_is_enough(tmp_path):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loop():
        for step in range(STEPS):
            x = torch.randn(8, 4)
            term = penalty(model, x)
            loss = fit(model, x) + (term if step == 0 else 0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert not told(loop, tmp_path)


def test_forces_of_an_energy_model_are_a_note(tmp_path):
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            x = x.clone().requires_grad_()
            energy = self.net(x)
            (force,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
            return energy, -force

    model = Energy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loop():
        for _ in range(STEPS):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            energy, _ = model(x)
            (energy - x[:, :1]).square().mean().backward()
            optimizer.step()

    (found,) = told(loop, tmp_path)
    assert found.severity == "note"


def test_a_step_whose_backwards_are_partly_unknown_may_have_used_it():
    class Log:
        def __init__(self):
            self.kinds = []

        def note(self, kind, *_):
            self.kinds.append(kind)

    def step_of(*numbers):
        seen = GraphedDerivatives()
        if numbers:
            seen.nodes["line"] = set(numbers)
        return seen

    for passed, expected in (({9}, ["unused-derivative"]), (set(), [])):
        log = Log()
        derivatives = UnusedDerivatives(log)
        for number in (1, 2):
            derivatives.stepped(step_of(number), {9}, is_next=True)
        derivatives.stepped(step_of(), passed, is_next=True)
        assert log.kinds == expected
