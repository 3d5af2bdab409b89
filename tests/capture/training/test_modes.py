"""Events for the rules on loop order: modes, tokens, failures, written gradients."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))


def loss_of(model):
    return functional.cross_entropy(model(torch.randn(8, 4)), torch.arange(8) % 3)


def trained(model, steps=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_mode_has_the_line_that_set_it(run):
    model = net()

    def loop():
        trained(model)
        model.eval()  # here
        trained(model)

    found = run(loop)
    (mode,) = found.events("mode")
    assert found.line(mode) == "model.eval()  # here"
    assert {name: dict(mode.numbers)[name] for name in ("dropout", "batchnorm")} == {
        "dropout": 1,
        "batchnorm": 1,
    }


class Functional(nn.Module):
    """Calls a dropout function, whose rate may be an attribute."""

    def __init__(self, rate):
        super().__init__()
        self.layer, self.dropout_rate = nn.Linear(4, 3), rate

    def hidden(self, x):
        rate = 0.2 if self.dropout_rate is None else self.dropout_rate
        return functional.dropout(self.layer(x), rate, self.training)

    def forward(self, x):
        return self.hidden(x)


class Branching(nn.Module):
    """Reads its mode for something else than dropout."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if self.training else self.layer(x).detach().requires_grad_()


@pytest.mark.parametrize(
    ("make", "dropout"),
    [
        (lambda: Functional(None), [1]),
        (lambda: Functional(0.3), [1]),
        (lambda: Functional(0.0), [0]),
        (Branching, [0]),
    ],
    ids=["a number", "a rate", "a rate of 0", "another use of the mode"],
)
def test_dropout_by_a_function_depends_on_the_mode(run, make, dropout):
    model = make()

    def loop():
        trained(model)
        model.eval()
        trained(model)

    modes = run(loop).events("mode")
    assert [dict(one.numbers)["dropout"] for one in modes] == dropout


@pytest.mark.parametrize("call", ["model.train(False)", "outer.eval()"])
def test_every_way_into_eval_mode_is_observed(run, call):
    model = net()
    outer = nn.ModuleList([model])

    def loop():
        if call == "outer.eval()":
            outer.eval()
        else:
            model.train(False)
        trained(model)

    found = run(loop)
    assert [found.line(one) for one in found.events("mode")] == [call]


def test_the_mode_of_what_a_wrapper_holds_counts(run):
    model = net()
    outer = nn.DataParallel(model)

    def loop():
        model.eval()
        trained(outer)

    assert outer.training
    found = run(loop)
    assert [found.line(one) for one in found.events("mode")] == ["model.eval()"]


def test_a_class_with_a_train_of_its_own_keeps_it(run):
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[2].eval()
            return self

    model = Frozen(*net())
    found = run(lambda: trained(model.train()))
    assert not found.events("mode")
    assert model.training and not model[2].training


@pytest.mark.parametrize(
    ("restore", "expected"),
    [
        (lambda model: setattr(model, "training", True), ["model.eval()  # here"]),
        (lambda model: model.train(), []),
        (lambda model: (model.train(), [one.eval() for one in model]), []),
        (lambda model: (setattr(model, "training", True), model[0].train()), []),
    ],
    ids=["the flag alone", "train()", "layers that another line froze", "some layers"],
)
def test_a_flag_that_is_set_without_the_layers_leaves_them_in_eval_mode(run, restore, expected):
    model = net()

    def loop():
        trained(model)
        model.eval()  # here
        restore(model)
        trained(model)

    found = run(loop)
    assert [found.line(one) for one in found.events("mode")] == expected


def test_train_is_restored_and_looks_as_before(run):
    before = nn.Module.train
    seen = []
    run(lambda: (seen.append(inspect.signature(nn.Module.train)), trained(net())))
    assert nn.Module.train is before
    assert seen == [inspect.signature(before)]
    assert net().eval().train(mode=True).training


def test_tokens_are_the_targets_that_are_not_ignored(run):
    model = nn.Linear(4, 3)

    def loop():
        target = torch.tensor([0, 1, -100, 2, -100, -100, 0, 1])
        for weight in (None, torch.ones(3)):
            functional.cross_entropy(model(torch.randn(8, 4)), target, weight=weight).backward()

    counted, weighted = run(loop).numbers("backward")
    assert counted["tokens"] == 5
    assert "tokens" not in weighted


def test_a_backward_that_fails_is_reported_with_its_reason(run):
    cell = nn.RNNCell(4, 4)

    def loop():
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
        state = torch.zeros(2, 4)
        for _ in range(2):
            state = cell(torch.randn(2, 4), state)
            state.sum().backward()
            optimizer.step()

    def caught():
        with pytest.raises(RuntimeError, match="second time"):
            loop()

    (failed,) = run(caught).numbers("backward-error")
    assert (failed["freed"], failed["older"], failed["in_place"]) == (1, 1, 0)


def test_gradients_that_the_script_divides_are_written(run):
    model = net()

    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for position in range(2):
            loss_of(model).backward()
            if position:
                for parameter in model.parameters():
                    parameter.grad /= 2
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()

    steps = run(loop).numbers("step")
    assert [one["written"] for one in steps] == [0, len(list(model.parameters()))]
