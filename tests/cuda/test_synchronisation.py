"""Recording never synchronizes with the GPU during backward."""

import warnings

import pytest
import torch
from torch import Tensor
from torch.autograd import Variable

import gradscope
from tests.cuda.loops import KINDS, WAYS, losses_of_images, train

_TOLD = "called a synchronizing CUDA operation"


def tell_waits(loss: Tensor) -> None:
    """Let torch warn of every wait for the device, from the beginning of a backward to its end."""

    def begin(_: Tensor) -> None:
        torch.cuda.set_sync_debug_mode("warn")
        Variable._execution_engine.queue_callback(lambda: torch.cuda.set_sync_debug_mode("default"))

    loss.register_hook(begin)


@pytest.fixture
def waits():
    """Return the warnings of waits."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield lambda: [str(one.message) for one in told if _TOLD in str(one.message)]
    torch.cuda.set_sync_debug_mode("default")


def test_a_wait_inside_of_backward_is_told(device, waits):
    model, losses = losses_of_images(device)
    loss = next(losses)
    tell_waits(loss)
    model.head.weight.register_hook(lambda gradient: float(gradient.sum()) and None)
    loss.backward()
    assert len(waits()) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_backward_of_a_watched_training_waits(kind, way, device, waits):
    with gradscope.watch(**WAYS[way]) as watch:
        train(kind, device, 12, tell_waits)
    assert waits() == []
    assert watch.steps == 12
    assert all("Error" not in one.reason for one in watch.report().recording.skipped)


def test_no_backward_of_a_step_that_repeats_another_waits(device, waits):
    with gradscope.watch(tensors=False) as watch:
        train("images", device, 300, tell_waits)
    assert waits() == []
    assert len(watch.report().recording.steps) == 300


def test_no_backward_of_an_inspection_waits(device, waits):
    model, losses = losses_of_images(device)

    def loss_fn(*_: object) -> Tensor:
        loss = next(losses)
        tell_waits(loss)
        return loss

    gradscope.inspect(model, torch.zeros(1, device=device), loss_fn, probe_steps=0)
    assert waits() == []
