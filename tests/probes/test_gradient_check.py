"""Cost limits of checking a custom function."""

import time

import pytest
import torch
from torch.autograd import Function

from gradscope.probes.forward import gradient_check
from gradscope.probes.forward.gradient_check import DOUBLE, UncheckedError, compare


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
    with pytest.raises(UncheckedError, match="its forward takes too long"):
        compare(Slow, [torch.randn(100)], [0], DOUBLE)


class Laborious(Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0)
        for _ in range(300):
            x = x + 1 / 300
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_how_many_elements_are_checked_goes_by_the_work_and_not_by_time(monkeypatch):
    few = 20_000_000 // (300 * (1000 + 100) + 1000 + 100)  # operations, elements, a copy of them
    for delay in (0.0, 0.0005):
        monkeypatch.setattr(time, "sleep", lambda wanted, sleep=time.sleep, by=delay: sleep(by))
        (found,) = compare(Laborious, [torch.randn(100)], [0], DOUBLE)
        assert found.analytical.numel() == few < 64
