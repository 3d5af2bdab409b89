"""GS216: inner steps of meta-learning, with and without the gradient of their gradients."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

X = torch.randn(24, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randn(24, 1, generator=torch.Generator().manual_seed(2))


class Learner(nn.Module):
    """A network that makes one step on half of a batch before it predicts the other half."""

    def __init__(self, *, learned_rate, graph, **switches):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        self.rate = nn.Parameter(torch.tensor(0.1)) if learned_rate else 0.1
        self.graph = graph
        vars(self).update(switches)

    def forward(self, inputs):
        weights = dict(self.net.named_parameters())
        loss = functional.mse_loss(functional_call(self.net, weights, (inputs[:12],)), Y[:12])
        found = torch.autograd.grad(loss, list(weights.values()), create_graph=self.graph)
        pairs = zip(weights.items(), found, strict=True)
        fast = {name: weight - self.rate * slope for (name, weight), slope in pairs}
        return functional_call(self.net, fast, (inputs[12:],))


def loss(model, batch):
    return functional.mse_loss(model(batch), Y[12:])


def said(findings_of, **options):
    found = findings_of(Learner(**options), X, loss)
    return [one.severity for one in found if one.rule == "GS216"]


@pytest.mark.parametrize("learned_rate", [False, True])
@pytest.mark.parametrize("switch", [{"first_order": False}, {"second_order": True}])
def test_first_order_gradients_against_the_switch_are_a_warning(findings_of, learned_rate, switch):
    assert said(findings_of, learned_rate=learned_rate, graph=False, **switch) == ["warning"]


def test_first_order_gradients_without_a_switch_are_a_note(findings_of):
    assert said(findings_of, learned_rate=False, graph=False) == ["note"]


@pytest.mark.parametrize("switch", [{"first_order": True}, {"second_order": False}])
def test_first_order_gradients_by_the_switch_are_fine(findings_of, switch):
    assert said(findings_of, learned_rate=False, graph=False, **switch) == []


def test_second_order_gradients_are_fine(findings_of):
    assert said(findings_of, learned_rate=True, graph=True, first_order=False) == []


def test_attack_on_an_input_is_fine(findings_of):
    def attacked(model, batch):
        inputs = batch.clone().requires_grad_()
        (slope,) = torch.autograd.grad(functional.mse_loss(model(inputs), Y), inputs)
        return functional.mse_loss(model(batch + 0.1 * slope.sign()), Y)

    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    assert not [one for one in findings_of(model, X, attacked) if one.rule == "GS216"]
