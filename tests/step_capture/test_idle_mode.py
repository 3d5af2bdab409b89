"""The capture mode leaves its stack after the last capture."""

import pytest
import torch

from gradscope.step_capture.schedule import FIRST


def test_a_script_without_modules_is_left_after_its_first_steps_by_hand(capture_steps):
    depths = []

    def loop():
        torch.manual_seed(0)
        weight, x = torch.randn(4, requires_grad=True), torch.randn(16, 4)
        for _ in range(FIRST + 3):
            (x @ weight).square().mean().backward()
            depths.append(torch._C._len_torch_function_stack())
            with torch.no_grad():
                weight -= 0.01 * weight.grad
                weight.grad = None

    made = capture_steps(loop)
    assert len(made.captured_steps) == FIRST
    assert depths[0] == 1 and depths[-1] == 0
    assert torch._tensor.has_torch_function_unary is torch.overrides.has_torch_function_unary
    assert torch.autograd.has_torch_function is torch.overrides.has_torch_function


@pytest.mark.nightly
def test_a_loop_that_calls_torch_autograd_is_left_too(capture_steps):
    depths = []

    def loop():
        torch.manual_seed(0)
        weight, x = torch.randn(4, requires_grad=True), torch.randn(16, 4)
        for _ in range(FIRST + 3):
            torch.autograd.backward((x @ weight).square().mean())
            depths.append(torch._C._len_torch_function_stack())
            weight.data -= 0.01 * weight.grad
            weight.grad.zero_()

    capture_steps(loop)
    assert depths[0] == 1 and depths[-1] == 0
