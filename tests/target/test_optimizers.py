"""`--optimizer` and `--lr`: their effect and their errors."""

import pytest
import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target.loading import target_from_objects
from gradscope.target.notation import OPTIMIZERS
from gradscope.target.optimizers import set_learning_rate, with_trial_optimizer
from gradscope.target.options import Trial

NET = "model = nn.Linear(3, 1)\nbatch = torch.ones(2, 3)\n"
OTHER = "torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)"
FOREIGN = "the optimizer has none of the model's parameters and is not used"


def target(model=None, optimizer=None):
    return target_from_objects(model or nn.Linear(3, 2), torch.ones(1, 3), optimizer=optimizer)


def chosen(given, **trial):
    return with_trial_optimizer(given, Trial(**trial)).optimizer


def error(given, **trial):
    with pytest.raises(GradscopeError) as caught:
        set_learning_rate(with_trial_optimizer(given, Trial(**trial)), Trial(**trial))
    return caught.value


@pytest.mark.parametrize("name", ["adamw", "AdamW", "ADAMW", "torch.optim.AdamW", "optim.adamw"])
def test_names_are_those_of_torch_in_any_case(name):
    assert type(chosen(target(), optimizer=name)) is torch.optim.AdamW


@pytest.mark.parametrize(
    ("name", "rate"), [("adamw", 1e-3), ("rmsprop", 1e-2), ("adadelta", 1.0), ("nadam", 2e-3)]
)
def test_rate_is_the_default_of_the_class(name, rate):
    assert chosen(target(), optimizer=name).param_groups[0]["lr"] == rate
    assert chosen(target(), optimizer=name, lr=0.5).param_groups[0]["lr"] == 0.5


def test_class_without_a_default_gets_one(monkeypatch):
    class Plain(torch.optim.SGD):
        def __init__(self, params, lr):
            super().__init__(params, lr)

    monkeypatch.setattr(torch.optim, "Plain", Plain, raising=False)
    assert chosen(target(), optimizer="plain").param_groups[0]["lr"] == 1e-3


def test_without_a_trial_the_target_keeps_its_own():
    model = nn.Linear(3, 2)
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    assert chosen(target(model, own)) is own
    assert chosen(target(model)) is None
    assert chosen(target(model, own), lr=0.3) is own


def test_named_optimizer_trains_what_the_targets_own_one_holds():
    model = nn.Linear(3, 2)
    outside = nn.Parameter(torch.ones(1))
    own = torch.optim.SGD([{"params": [model.bias]}, {"params": [outside]}], lr=0.1)
    (group,) = chosen(target(model, own), optimizer="adam").param_groups
    assert [one is other for one, other in zip(group["params"], [model.bias, outside], strict=True)]
    assert len(chosen(target(model), optimizer="adam").param_groups[0]["params"]) == 2


def test_frozen_parameters_are_not_trained():
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    assert len(chosen(target(model), optimizer="sgd").param_groups[0]["params"]) == 1
    model.bias.requires_grad_(False)
    assert chosen(target(model), optimizer="sgd") is None


def test_unknown_name_has_a_suggestion():
    told = error(target(), optimizer="admaw")
    assert told.what == "unknown --optimizer 'admaw'"
    assert told.help == "did you mean 'adamw'?"
    assert "LBFGS" not in told.cause
    assert error(target(), optimizer="adam_w").help == "did you mean 'adamw'?"


def test_list_of_names_is_that_of_torch():
    here = vars(torch.optim).values()
    kinds = [
        one for one in here if isinstance(one, type) and issubclass(one, torch.optim.Optimizer)
    ]
    assert {one.__name__ for one in kinds} - {"Optimizer"} == set(OPTIMIZERS)


@pytest.mark.parametrize("name", ["optimizer", "lr_scheduler", "", ".", "__doc__"])
def test_other_names_in_torch_optim_are_no_optimizers(name):
    assert error(target(), optimizer=name).what == f"unknown --optimizer {name!r}"


def test_one_that_needs_a_closure_is_told():
    assert error(target(), optimizer="lbfgs").cause == "LBFGS needs a closure for its steps"


def test_one_that_refuses_the_parameters_is_told():
    told = error(target(), optimizer="muon")
    assert told.what == "--optimizer Muon does not accept the parameters of Linear"
    assert "2D" in told.cause


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", [None, "sgd"])
def test_impossible_rate_is_told(rate, name):
    assert "is not a learning rate" in error(target(), optimizer=name, lr=rate).what


def test_rate_kept_as_a_tensor_stays_one():
    model = nn.Linear(3, 2)
    own = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False)
    set_learning_rate(target(model, own), Trial(lr=0.25))
    rate = own.param_groups[0]["lr"]
    assert isinstance(rate, torch.Tensor)
    assert rate.item() == 0.25


def test_optimizer_without_a_rate_is_told():
    class Fixed(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure=None):
            pass

    model = nn.Linear(3, 2)
    told = error(target(model, Fixed(model.parameters())), lr=0.1)
    assert told.what == "--lr 0.1: Fixed has no learning rate"


@pytest.mark.parametrize(
    "text",
    [
        f"optimizer = {OTHER}\n",
        f"def build_optimizer(model): return {OTHER}\n",
        f"def gradscope_setup(): return dict(model=model, batch=batch, optimizer={OTHER})\n",
    ],
)
def test_optimizer_of_another_model_is_noted_and_not_used(workplace, text):
    target = workplace.load(NET + text)
    assert target.optimizer is None
    assert target.notes == (FOREIGN,)


def test_factory_without_the_model_is_told_that_it_gets_it(workplace):
    error = workplace.error(NET + f"def build_optimizer(): return {OTHER}\n")
    assert error.what == "build_optimizer takes the model"


def test_optimizer_class_is_told_from_an_optimizer(workplace):
    setup = "def gradscope_setup(): return dict(model=model, optimizer=torch.optim.SGD)\n"
    assert workplace.error(NET + setup).what == "optimizer is the class SGD"


@pytest.mark.parametrize(
    ("optimizer", "message"), [(torch.optim.SGD, "is the class SGD"), ("sgd", "is str, expected")]
)
def test_object_that_is_no_optimizer_is_refused(optimizer, message):
    with pytest.raises(GradscopeError, match=f"optimizer {message}"):
        target_from_objects(nn.Linear(3, 1), torch.ones(2, 3), optimizer=optimizer)


def test_optimizer_object_of_another_model_is_not_used():
    other = torch.optim.SGD(nn.Linear(1, 1).parameters())
    target = target_from_objects(nn.Linear(3, 1), torch.ones(2, 3), optimizer=other)
    assert (target.optimizer, target.notes) == (None, (FOREIGN,))
