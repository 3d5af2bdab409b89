"""What checking a custom function may cost."""

import time

import pytest
import torch
from torch.autograd import Function

from gradscope.probes import gradient_check
from gradscope.probes.gradient_check import DOUBLE, UncheckedError, compare


class Slow(Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.002)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_a_slow_function_is_left_unchecked(monkeypatch):
    monkeypatch.setattr(gradient_check, "_SECONDS", 0.01)
    with pytest.raises(UncheckedError, match=r"its forward takes 0\.00\d+ s"):
        compare(Slow, [torch.randn(100)], [0], DOUBLE)


def test_a_slower_function_is_checked_at_fewer_elements(monkeypatch):
    monkeypatch.setattr(gradient_check, "_SECONDS", 0.2)
    (found,) = compare(Slow, [torch.randn(100)], [0], DOUBLE)
    assert 8 <= found.analytical.numel() <= 33
