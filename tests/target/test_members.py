"""Members of modules are those that torch lists, and no code of the script runs."""

import pytest
import torch
from torch import nn

from gradscope.target import members


def tied():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["embed"].weight
    model["again"] = model["embed"]
    return model


def nested():
    block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.ReLU(), nn.ReLU()))
    return nn.Sequential(block, nn.ModuleList([block, nn.Identity()]), nn.Linear(2, 2))


def with_none():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False))
    model.register_module("absent", None)
    model.register_buffer("unset", None)
    return model


MODELS = {
    "tied": tied,
    "nested": nested,
    "with_none": with_none,
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(nested()),
    "compiled": lambda: torch.compile(nested(), backend="eager"),
    "transformer": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2), 2),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_members_are_those_that_torch_lists_in_its_order(make):
    model = make()
    assert list(members.named_modules(model)) == list(model.named_modules())
    every = members.named_modules(model, every_name=True)
    assert list(every) == list(model.named_modules(remove_duplicate=False))
    assert list(members.modules(model)) == list(model.modules())
    assert members.named_children(model) == [
        (name, child) for name, child in model._modules.items() if child is not None
    ]
    for ours, theirs in [
        (members.named_parameters(model), model.named_parameters()),
        (members.named_buffers(model), model.named_buffers()),
    ]:
        assert [(name, id(one)) for name, one in ours] == [(name, id(one)) for name, one in theirs]
    assert list(map(id, members.parameters(model))) == list(map(id, model.parameters()))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "compile_to_script",
    [torch.jit.script, lambda model: torch.jit.trace(model, torch.randn(4, 2))],
    ids=["script", "trace"],
)
def test_members_of_a_scripted_module_are_those_that_torch_lists(compile_to_script):
    model = compile_to_script(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3)))
    names = [name for name, _ in model.named_parameters()]
    assert [name for name, _ in members.named_parameters(model)] == names
    assert list(map(id, members.parameters(model))) == list(map(id, model.parameters()))
    assert [name for name, _ in members.named_modules(model)] == ["", "0", "1"]


class WithOwnMethods(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def named_modules(self):
        raise RuntimeError("the script never asks for these")

    named_parameters = named_buffers = modules = parameters = children = named_modules


class Uninitialised(nn.Module):
    def __init__(self):
        self.width = 3


def test_methods_that_a_script_overrides_are_not_called():
    model = nn.Sequential(WithOwnMethods())
    assert [name for name, _ in members.named_parameters(model)] == [
        "0.inner.weight",
        "0.inner.bias",
    ]


def test_an_uninitialised_module_has_no_members():
    module = Uninitialised()
    assert list(members.named_modules(module)) == [("", module)]
    assert list(members.parameters(module)) == []


def test_a_cycle_of_modules_is_walked_once():
    model = nn.Sequential(nn.Linear(2, 2))
    model.__dict__["_modules"]["back"] = model
    for every_name in (False, True):
        names = [name for name, _ in members.named_modules(model, every_name=every_name)]
        assert names == ["", "0"]
