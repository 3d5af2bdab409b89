import random

import numpy as np
import pytest
import torch
from torch import nn

from gradscope.errors import GradscopeError, UserCodeError
from gradscope.target.loading import target_from_objects


def error_of(model, batch):
    with pytest.raises(UserCodeError) as caught:
        target_from_objects(model, batch).forward()
    return caught.value


@pytest.mark.parametrize(
    ("model", "batch", "cause", "help_"),
    [
        (nn.Conv2d(1, 32, 3), torch.ones(1, 3, 28, 28),
         "first layer Conv2d(1, 32) expects 1 channel", "--input 4,1,28,28"),
        (nn.Conv2d(3, 32, 3), torch.ones(28, 28),
         "first layer Conv2d(3, 32) expects 4 dimensions", "--input 4,3,32,32"),
        (nn.Embedding(50, 4), torch.ones(2, 3),
         "first layer Embedding(50, 4) expects token numbers (int64)", "--input int64[0,50]:4,16"),
        (nn.Embedding(50, 4), torch.full((2, 3), 50),
         "first layer Embedding(50, 4) expects token numbers from 0 to 49", "--input int64"),
        (nn.Linear(10, 5), torch.ones(2, 11),
         "first layer Linear(10, 5) expects 10 features in the last dimension", "--input 8,10"),
        (nn.Linear(10, 5), torch.ones(2, 10, dtype=torch.int64),
         "first layer Linear(10, 5) expects floating input", "--input 8,10"),
        (nn.GRU(6, 5), torch.ones(2, 3, 7),
         "first layer GRU(6, 5) expects 6 features in the last dimension", "--input 16,4,6"),
        (nn.Linear(10, 5), torch.ones(2, 10, dtype=torch.float64),
         "the input is float64, the parameters are float32", "--dtype float32"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(9, 1)), torch.ones(1, 1, 8, 8),
         "2 Linear(9, 1) expects 9 features in the last dimension, its input is float32[1,72]",
         None),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.ones(1, 3),
         "batch normalisation in train mode needs more than one example", "larger batch"),
        (nn.Bilinear(2, 2, 1), torch.ones(1, 2),
         "Bilinear.forward(self, input1, input2) does not fit this batch: "
         "missing a required argument: 'input2'", "--input name=shape"),
    ],
)  # fmt: skip
def test_failed_forward_says_which_layer_wants_what(model, batch, cause, help_):
    error = error_of(model, batch)
    assert error.what.startswith("forward failed with input ")
    assert error.cause.startswith(cause)
    assert error.help is None if help_ is None else help_ in error.help


def test_failure_in_the_users_code_has_no_invented_cause():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Embedding(4, 2)

        def forward(self, x):
            raise RuntimeError("mine")

    error = error_of(Net(), torch.ones(2, 2))
    assert error.cause is None
    assert str(error.__cause__) == "mine"


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        noise = torch.rand(3) + random.random() + float(np.random.rand())
        return (self.weight * x * noise).sum()


def test_seeded_forwards_are_equal():
    target = target_from_objects(Noisy(), torch.ones(3), seed=5)
    first = target.forward().loss
    torch.rand(1)
    assert torch.equal(first, target.forward().loss)


def test_without_seed_the_random_state_runs_on():
    target = target_from_objects(Noisy(), torch.ones(3))
    assert not torch.equal(target.forward().loss, target.forward().loss)


def test_batch_changed_by_the_forward_is_whole_again_for_the_next():
    batch = {"x": torch.ones(2, 3), "y": torch.ones(2)}

    def compute_loss(model, batch):
        batch["x"].mul_(2)
        return (model(batch["x"]).squeeze(1) - batch.pop("y")).sum()

    target = target_from_objects(nn.Linear(3, 1), batch, compute_loss)
    assert torch.equal(target.forward().loss, target.forward().loss)
    assert torch.equal(batch["x"], torch.ones(2, 3))
    assert "y" in batch


def test_leaf_in_the_batch_gets_its_own_gradient():
    x = torch.ones(2, 3, requires_grad=True)
    target_from_objects(nn.Linear(3, 1), x).forward().loss.backward()
    assert x.grad is not None


def test_objects_are_not_touched():
    model = nn.Linear(3, 1).eval()
    target = target_from_objects(model, torch.ones(2, 3), nn.MSELoss, name="mine")
    assert not model.training
    assert (target.name, target.model, target.seed) == ("mine", model, None)


@pytest.mark.parametrize(
    ("loss_fn", "description"),
    [
        (nn.MSELoss(), "MSELoss(output, target)"),
        (nn.functional.mse_loss, "mse_loss(output, target)"),
        (lambda output, target: (output - target).sum(), "loss_fn(output, target)"),
        (lambda output, batch: output.sum() + batch[1].sum(), "loss_fn(output, batch)"),
        (lambda model, batch: model(batch[0]).sum(), "loss_fn(model, batch)"),
    ],
)
def test_loss_function_is_called_by_its_signature(loss_fn, description):
    batch = (torch.ones(2, 3), torch.ones(2, 1))
    assert target_from_objects(nn.Linear(3, 1), batch, loss_fn).forward().description == description


def test_class_instead_of_model_is_told():
    with pytest.raises(GradscopeError) as caught:
        target_from_objects(nn.ReLU, torch.ones(1))
    assert caught.value.help == "inspect(Net(), ...), with the parentheses"


def test_grad_output_objects():
    vector = torch.full((2, 1), 3.0)
    outcome = target_from_objects(nn.Linear(3, 1), torch.ones(2, 3), grad_output=vector).forward()
    assert torch.equal(outcome.grad_output, vector)
    with pytest.raises(GradscopeError, match="unknown grad_output 'one'"):
        target_from_objects(nn.Linear(3, 1), torch.ones(2, 3), grad_output="one")


@pytest.mark.nightly
def test_eager_switches_the_compiler_off(workplace):
    text = """
    compiled = []
    def backend(graph, inputs):
        compiled.append(graph)
        return graph
    inner = nn.Linear(3, 1)
    model = torch.compile(inner, backend=backend)
    model.compiled = compiled
    batch = torch.ones(2, 3)
    """
    eager = workplace.load(text, eager=True)
    eager.forward()
    assert not eager.model.compiled
    compiled = workplace.load(text)
    compiled.forward()
    assert compiled.model.compiled
