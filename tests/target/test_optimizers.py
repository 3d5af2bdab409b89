import pytest
import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target.loading import target_from_objects

NET = "model = nn.Linear(3, 1)\nbatch = torch.ones(2, 3)\n"
OTHER = "torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)"
FOREIGN = "the optimizer has none of the model's parameters and is not used"


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
