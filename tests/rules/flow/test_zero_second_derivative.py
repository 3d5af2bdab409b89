"""GS118: second derivatives of networks with straight and with smooth activations."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push


def network(*activations):
    layers = [nn.Linear(2, 8)]
    for one in activations:
        layers += [one, nn.Linear(8, 8)]
    return nn.Sequential(*layers, nn.Linear(8, 1))


def points(count=32):
    return torch.rand(count, 2, generator=torch.Generator().manual_seed(1))


def derivative(values, of):
    return torch.autograd.grad(values.sum(), of, create_graph=True)[0]


def equation(model, batch):
    """The residual of u_t = u_xx."""
    x = batch.clone().requires_grad_()
    values = model(x)
    first = derivative(values, x)
    return (first[:, 1] - derivative(first[:, 0], x)[:, 0] + values[:, 0]).square().mean()


def said(findings_of, model, loss=equation, batch=None):
    found = findings_of(model, points() if batch is None else batch, loss)
    return [one for one in found if one.rule == "GS118"]


STRAIGHT = [nn.ReLU(), nn.LeakyReLU(), nn.ReLU6(), nn.PReLU(), nn.Hardtanh(-0.5, 0.5)]

SMOOTH = [nn.Tanh(), nn.SiLU(), nn.GELU(), nn.ELU(), nn.Softplus(), nn.Sigmoid()]


@pytest.mark.parametrize("one", some_on_push(STRAIGHT, 3), ids=str)
def test_straight_activations_are_found(findings_of, one):
    (found,) = said(findings_of, network(one, one))
    assert found.severity == "error"
    assert type(one).__name__ in found.message


@pytest.mark.parametrize("one", some_on_push(SMOOTH, 3), ids=str)
def test_smooth_activations_are_fine(findings_of, one):
    assert not said(findings_of, network(one, one))


def test_one_smooth_activation_is_enough(findings_of):
    assert not said(findings_of, network(nn.ReLU(), nn.Tanh()))


def slope(model, batch):
    x = batch.clone().requires_grad_()
    return (derivative(model(x), x).norm(dim=1) - 1).square().mean()


def test_first_derivatives_are_fine(findings_of):
    assert not said(findings_of, network(nn.ReLU()), slope)


def test_network_that_begins_at_zero_is_fine(findings_of):
    model = network(nn.ReLU())
    nn.init.zeros_(model[-1].weight)
    assert not said(findings_of, model)


@pytest.mark.parametrize(("count", "found"), [(7, 0), (8, 1)])
def test_sixteen_elements_are_needed(findings_of, count, found):
    assert len(said(findings_of, network(nn.ReLU()), batch=points(count))) == found


def logged(model, batch):
    """A loss beside which a second derivative is only computed."""
    x = batch.clone().requires_grad_()
    values = model(x)
    torch.autograd.grad(derivative(values, x).sum(), x, retain_graph=True)
    return values.square().mean()


def test_second_derivative_without_a_graph_is_a_warning(findings_of):
    (found,) = said(findings_of, network(nn.ReLU()), logged)
    assert found.severity == "warning"
