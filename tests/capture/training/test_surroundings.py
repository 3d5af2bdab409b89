"""Tests the names of models, optimizers and related objects."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy


def data(rows=16):
    return torch.randn(rows, 8), torch.randint(0, 4, (rows,))


def mean_loss(model, rows=16):
    x, y = data(rows)
    return cross_entropy(model(x), y)


@pytest.fixture(name="model")
def _model():
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))


def test_schedulers_modes_and_epochs_are_noted(run, model):
    def loop():
        net = nn.Sequential(model, nn.Dropout(0.5))
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        loader = torch.utils.data.DataLoader(torch.randn(8, 8), batch_size=4)
        net.eval()
        for x in loader:
            net(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()

    made = run(loop)
    assert made.numbers("epoch") == [{"batches": 2}]
    assert made.numbers("scheduler") == [{"lr_before": 1.0, "lr_after": 0.5}]
    assert [n["dropout"] for n in made.numbers("mode")] == [1, 1]


def test_models_may_come_and_go(run):
    def loop():
        for _ in range(3):
            model = nn.Linear(8, 4)
            optimizer = torch.optim.SGD(copy.deepcopy(model).parameters(), lr=0.1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            mean_loss(model).backward()
            optimizer.step()
            del model, optimizer

    made = run(loop)
    assert [n["fresh"] for n in made.numbers("step")] == [2, 2, 2]
    assert [n["stale"] for n in made.numbers("backward")] == [0, 0, 0]


def test_parameters_of_no_module_are_recorded(run):
    def loop():
        weight = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        (weight - 1).square().sum().backward()
        optimizer.step()

    made = run(loop)
    (parameter,) = made.recording.parameters
    assert parameter.shape.dims == (3,)
    assert made.recording.modules[parameter.module].index == parameter.module
    assert made.numbers("backward")[0]["reduction"] == 0


def test_models_that_are_never_called_have_the_name_that_their_optimizer_was_given(run):
    def loop():
        net = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.forward(torch.randn(2, 8)).mean().backward()
        optimizer.step()

    # The parts of it are called, by its forward.
    names = [p.name for p in run(loop).recording.parameters]
    assert len(set(names)) == 4
    assert not any(name.startswith("parameter") for name in names)

    def of_weights():
        net = nn.Linear(8, 4)
        optimizer = torch.optim.SGD([{"params": net.parameters()}], lr=0.1)
        nn.functional.linear(torch.randn(2, 8), net.weight, net.bias).mean().backward()
        optimizer.step()

    names = [p.name for p in run(of_weights).recording.parameters]
    assert names == ["net.weight", "net.bias"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_without_sizes_and_modules_without_a_name_are_taken_in(run):
    def loop():
        model = nn.Sequential(nn.Linear(8, 4))
        model._modules[""] = nn.Linear(4, 4)
        model._modules["last"] = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for rows in (3, 5):
            layout = torch.strided
            nested = torch.nested.nested_tensor([torch.randn(rows, 8)] * 2, layout=layout)
            optimizer.zero_grad()
            torch.cat(model(nested).unbind()).pow(2).mean().backward()
            optimizer.step()

    made = run(loop)
    assert made.recording.finished
    assert len(made.numbers("step")) == 2
    assert len(made.recording.parameters) == 6


def test_what_has_no_elements_is_not_measured(run):
    def loop():
        shapes, model = nn.Linear(8, 4, device="meta"), nn.Linear(8, 4)
        optimizer = torch.optim.SGD([*shapes.parameters(), *model.parameters()], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            shapes(torch.randn(3, 8, device="meta")).pow(2).mean().backward()
            mean_loss(model).backward()
            optimizer.step()

    made = run(loop)
    assert [n["nonfinite"] for n in made.numbers("step")] == [0, 0]
    names = [parameter.name for parameter in made.recording.parameters]
    measured = {names[stat.parameter] for stat in made.recording.parameter_stats}
    assert measured == {"model.weight", "model.bias"}


def test_a_step_without_elements_has_no_norm(run):
    def loop():
        model = nn.Linear(8, 4, device="meta")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(3, 8, device="meta")).pow(2).mean().backward()
        optimizer.step()

    (numbers,) = run(loop).numbers("step")
    assert numbers["nonfinite"] == 0
    assert "norm" not in numbers
