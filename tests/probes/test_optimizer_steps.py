"""Update norms, against plain optimizers."""

import pytest
import torch
from torch import nn

from gradscope.errors import UserCodeError
from gradscope.probes.optimizer_steps import OptimizerProbe, describe_optimizer


def trained(model: nn.Module) -> nn.Module:
    model(torch.randn(4, 3)).square().sum().backward()
    return model


def test_update_norm_of_gradient_descent_is_rate_times_gradient():
    torch.manual_seed(0)
    model = trained(nn.Linear(3, 2))
    parameters = list(model.parameters())
    probe = OptimizerProbe(parameters, torch.optim.SGD(parameters, lr=0.25))
    expected = [0.25 * p.grad.double().norm().item() for p in parameters]
    assert probe.step() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_update_norm_is_the_norm_of_the_change(dtype):
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(50).to(dtype))
    parameter.grad = torch.randn(50).to(dtype)
    before = parameter.detach().double().clone()
    (norm,) = OptimizerProbe([parameter], torch.optim.AdamW([parameter], lr=0.01)).step()
    assert norm == pytest.approx((parameter.detach().double() - before).norm().item(), rel=1e-6)


def test_update_lost_to_rounding_is_zero():
    parameter = nn.Parameter(torch.full((4,), 256.0, dtype=torch.bfloat16))
    parameter.grad = torch.full((4,), 0.1, dtype=torch.bfloat16)
    assert OptimizerProbe([parameter], torch.optim.SGD([parameter], lr=0.1)).step() == [0.0]


def test_complex_parameter():
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.complex64))
    parameter.grad = torch.tensor([3 + 4j])
    (norm,) = OptimizerProbe([parameter], torch.optim.SGD([parameter], lr=0.1)).step()
    assert norm == pytest.approx(0.5, rel=1e-6)


def test_parameters_the_optimizer_does_not_hold_do_not_move():
    model = trained(nn.Linear(3, 2))
    probe = OptimizerProbe(list(model.parameters()), torch.optim.SGD([model.weight], lr=0.1))
    moved, still = probe.step()
    assert moved > 0
    assert still == 0


def test_without_an_optimizer_dense_and_sparse_gradients_get_an_adam_each():
    table = nn.Embedding(5, 3, sparse=True)
    linear = nn.Linear(3, 2)
    linear(table(torch.tensor([1, 1, 2]))).sum().backward()
    probe = OptimizerProbe([*table.parameters(), *linear.parameters()], None)
    assert probe.description == "Adam(lr=0.001) and SparseAdam(lr=0.001)"
    assert probe.skip_reason is None
    assert all(norm > 0 for norm in probe.step())


def test_nothing_to_step_is_a_reason_to_skip():
    assert OptimizerProbe([nn.Parameter(torch.ones(1))], None).skip_reason
    sparse = nn.Parameter(torch.eye(2).to_sparse())
    sparse.grad = torch.eye(2).to_sparse()
    assert OptimizerProbe([sparse], None).skip_reason


def test_closure_is_a_reason_to_skip():
    parameter = nn.Parameter(torch.ones(1))
    probe = OptimizerProbe([parameter], torch.optim.LBFGS([parameter]))
    assert probe.skip_reason == "LBFGS needs a closure for its steps"


def test_exception_of_the_optimizer_is_the_users():
    class Breaks(torch.optim.SGD):
        def step(self, closure=None):
            raise ZeroDivisionError

    parameter = nn.Parameter(torch.ones(1))
    with pytest.raises(UserCodeError, match=r"Breaks\.step") as caught:
        OptimizerProbe([parameter], Breaks([parameter], lr=0.1)).step()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_description_names_every_rate_once():
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": rate} for rate in (0.1, 0.01, 0.1)]
    assert describe_optimizer(torch.optim.AdamW(groups)) == "AdamW(lr=0.1, 0.01)"


def test_a_rate_that_the_optimizer_chooses_itself_is_not_named():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    optimizer.param_groups[0]["lr"] = None
    assert describe_optimizer(optimizer) == "SGD"
