import pytest
import torch

from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.steps.measurements import rounded, samples_of


def step_of(parameter, gradient, rate):
    """Make a plain step; return what was counted, and the count made by hand."""
    entry = GradientState().add(parameter)
    parameter.grad = gradient
    samples = samples_of([entry])
    before = parameter.detach().clone()
    with torch.no_grad():
        parameter -= rate * gradient
    same = (parameter.detach() == before) & (gradient != 0) & torch.isfinite(gradient)
    moving = int(((gradient != 0) & torch.isfinite(gradient)).sum())
    return rounded(samples), (moving, int(same.sum()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e-2, 10.0])
def test_counts_are_those_made_by_hand(dtype, rate):
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(40, 30).to(dtype))
    gradient = (torch.randn(40, 30) * (torch.rand(40, 30) > 0.3)).to(dtype)
    gradient[0, 0], gradient[0, 1] = float("nan"), float("inf")
    (one,), expected = step_of(parameter, gradient, rate)
    assert (one.moving, one.unchanged) == expected


def test_all_is_lost_below_half_the_spacing_and_nothing_above_it():
    parameter = torch.nn.Parameter(torch.ones(100, dtype=torch.bfloat16))
    (one,), _ = step_of(parameter, torch.full((100,), 2.0**-10, dtype=torch.bfloat16), 1.0)
    assert (one.moving, one.unchanged) == (100, 100)
    (one,), _ = step_of(parameter, torch.full((100,), 2.0**-7, dtype=torch.bfloat16), 1.0)
    assert (one.moving, one.unchanged) == (100, 0)


def test_large_parameters_are_sampled():
    parameter = torch.nn.Parameter(torch.ones(1000, 1000, dtype=torch.bfloat16))
    (one,), _ = step_of(parameter, torch.full_like(parameter, 1e-5).detach(), 1.0)
    assert 4000 < one.moving <= 8192
    assert one.unchanged == one.moving


def test_full_precision_and_missing_gradients_are_passed_over():
    gradient_state = GradientState()
    full = gradient_state.add(torch.nn.Parameter(torch.ones(4)))
    half = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    samples = samples_of([full, gradient_state.add(half)])
    assert len(samples) == 1
    assert rounded(samples) == []


def test_views_of_other_layouts_are_counted():
    parameter = torch.nn.Parameter(torch.ones(6, 4, dtype=torch.float16).t())
    (one,), expected = step_of(parameter, torch.ones(4, 6, dtype=torch.float16), 1e-5)
    assert (one.moving, one.unchanged) == expected == (24, 24)


def test_gradients_of_another_layout_keep_their_order():
    parameter = torch.nn.Parameter(torch.ones(3, 5, dtype=torch.float16))
    gradient = torch.zeros(5, 3, dtype=torch.float16).t()
    gradient[0, 1] = 1.0
    (one,), expected = step_of(parameter, gradient, 1e-5)
    assert (one.moving, one.unchanged) == expected == (1, 1)
