"""A gradient that is checked in each repeated step, against torch's own `isfinite`."""

import math

import pytest
import torch
from torch import nn

from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.pacing.sentinels import CheckedGradient

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def checked(parameter: nn.Parameter) -> CheckedGradient:
    return CheckedGradient(WeakTensor(parameter), parameter)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", [0.0, -3.5, 1e-30, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("position", [0, 11, 23])
def test_one_element_decides_whether_it_is_finite(dtype, value, position):
    parameter = nn.Parameter(torch.zeros(4, 6, dtype=dtype))
    gradient = checked(parameter)
    for _ in range(3):  # at another address each time
        parameter.grad = torch.randn(4, 6).to(dtype)
        assert gradient.is_finite()
        parameter.grad.view(-1)[position] = value
        assert gradient.is_finite() == bool(torch.isfinite(parameter.grad).all())
        parameter.grad.zero_()
        assert gradient.is_finite()


@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_number_is_finite(dtype):
    parameter = nn.Parameter(torch.zeros(3, dtype=dtype))
    parameter.grad = torch.full((3,), torch.finfo(dtype).max / 8, dtype=dtype)
    assert checked(parameter).is_finite()


def test_other_gradients_than_expected_are_no_evidence_or_are_read_by_torch():
    parameter = nn.Parameter(torch.zeros(4))
    gradient = checked(parameter)
    assert not gradient.is_finite()  # there is none
    parameter.grad = torch.ones(4)
    assert gradient.is_finite()
    parameter.grad.untyped_storage().resize_(0)
    assert not gradient.is_finite()
    parameter.grad = torch.tensor([math.nan]).expand(4)
    assert not gradient.is_finite()
    parameter.grad = torch.tensor([1.0, math.nan] * 4)[::2]
    assert gradient.is_finite()
    parameter.grad = torch.tensor([1.0, math.nan] * 4)[1::2]
    assert not gradient.is_finite()


def test_a_sparse_gradient_is_not_read():
    table = nn.Embedding(4, 2, sparse=True)
    gradient = checked(table.weight)
    table(torch.tensor([1])).sum().backward()
    assert not gradient.is_finite()


def test_the_gradient_of_a_parameter_that_is_gone_is_not_read():
    parameter = nn.Parameter(torch.zeros(4))
    gradient = checked(parameter)
    del parameter
    assert not gradient.is_finite()


def test_memory_that_holds_another_type_now_is_not_read_as_before():
    memory = torch.zeros(4)
    parameter = nn.Parameter(torch.zeros(4))
    parameter.grad = memory
    gradient = checked(parameter)
    assert gradient.is_finite()
    parameter.grad = None
    parameter.data = parameter.data.bfloat16()
    parameter.grad = memory.view(torch.bfloat16)[:4]
    parameter.grad[0] = math.nan
    assert not gradient.is_finite()
