"""`steps` and batches of a loader, from Python."""

import random

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import gradscope
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.testing import UnhealthyGradientsError, assert_gradients_healthy

RATE = 0.1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def batches(count=3):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 4, generator=generator), torch.randn(8, 4, generator=generator))
        for _ in range(count)
    ]


def trained_loss(given):
    """The loss on the last batch after a step of gradient descent on each before it."""
    model = network()
    for x, y in given[:-1]:
        gradients = torch.autograd.grad(mse_loss(model(x), y), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= RATE * gradient
    x, y = given[-1]
    return float(mse_loss(model(x), y).detach())


def loader(given):
    data = TensorDataset(*(torch.cat(part) for part in zip(*given, strict=True)))
    return DataLoader(data, batch_size=8)


@pytest.mark.parametrize("run", [gradscope.inspect, assert_gradients_healthy])
@pytest.mark.parametrize("give", [loader, iter, lambda given: (one for one in given)])
def test_each_step_takes_the_next_batch(run, give):
    model, given = network(), batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    report = run(model, give(given), mse_loss, optimizer=optimizer, steps=2)
    assert report.summary.loss == pytest.approx(trained_loss(given), rel=1e-5)
    again = run(model, give(given), mse_loss, optimizer=optimizer, steps=4)  # begins anew
    expected = trained_loss([*given, *given[:2]])
    assert again.summary.loss == pytest.approx(expected, rel=1e-5)


def test_one_batch_is_that_of_every_step():
    model, (batch,) = network(), batches(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    report = gradscope.inspect(model, batch, mse_loss, optimizer=optimizer, steps=3)
    assert report.summary.loss == pytest.approx(trained_loss([batch] * 4), rel=1e-5)


def test_without_an_optimizer_adam_makes_the_steps():
    model, (batch,) = network(), batches(1)
    first = gradscope.inspect(model, batch, mse_loss).summary.loss
    report = gradscope.inspect(model, batch, mse_loss, steps=3)
    assert report.summary.loss < first
    assert report.target.optimizer is None


def test_what_breaks_after_some_steps_is_found():
    model, (batch,) = network(), batches(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
    assert_gradients_healthy(model, batch, mse_loss, optimizer=optimizer, probe_steps=0)
    with pytest.raises(UnhealthyGradientsError, match="GS10"):
        assert_gradients_healthy(
            model, batch, mse_loss, optimizer=optimizer, probe_steps=0, steps=5
        )


def test_everything_is_left_as_it_was():
    model, data = network(), loader(batches())
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    shuffled = DataLoader(data.dataset, batch_size=8, shuffle=True)

    def state():
        values = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
        gradients = [parameter.grad for parameter in model.parameters()]
        drawn = torch.get_rng_state().tolist(), random.getstate()
        return values, gradients, optimizer.state_dict(), drawn

    before = state()
    gradscope.inspect(model, shuffled, mse_loss, optimizer=optimizer, steps=4)
    assert state() == before


@pytest.mark.parametrize("steps", [-1, 1.5, True, "3", None])
def test_no_number_of_steps(steps):
    with pytest.raises(GradscopeError, match=r"steps is .*, expected 0 or more"):
        gradscope.inspect(network(), batches(1)[0], mse_loss, steps=steps)


def test_loaders_that_give_no_batch():
    with pytest.raises(GradscopeError, match="'batch' of 'DataLoader' is empty"):
        gradscope.inspect(network(), DataLoader([]), mse_loss)

    def broken():
        yield batches(1)[0]
        raise ZeroDivisionError

    assert gradscope.inspect(network(), broken(), mse_loss, probe_steps=0).summary.reached == 4
    with pytest.raises(UserCodeError, match=r"after 1 .*reading the next batch of 'batch' failed"):
        gradscope.inspect(network(), broken(), mse_loss, steps=2)
