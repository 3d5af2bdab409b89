"""Tests the recorded lines that register modules and parameters."""

import copy
import gc
import inspect
import sys

import pytest
import torch
from torch import nn

from gradscope.capture.source.definitions import Definitions, watch_definitions


def line_of(function, text: str) -> int:
    """The number of the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [first + position for position, line in enumerate(lines) if text in line]
    return found


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_parameter("shift", nn.Parameter(torch.zeros(2)))
        self.register_parameter("absent", None)
        self.nothing = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.add_module("head", nn.Linear(2, 1))
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.layers.append(nn.Tanh())
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(2))])


@pytest.fixture
def watched():
    """A net that was made under watch, and what was noted of it."""
    with watch_definitions() as definitions:
        net = Net()
    return net, definitions


@pytest.mark.parametrize(
    ("path", "function", "text"),
    [
        ("block", Net, "self.block ="),
        ("block.linear", Block, "self.linear ="),
        ("head", Net, 'add_module("head"'),
        ("layers", Net, "self.layers = "),
        ("layers.0", Net, "self.layers = "),
        ("layers.1", Net, "self.layers = "),
        ("layers.2", Net, "self.layers.append"),
    ],
)
def test_a_module_has_the_line_that_gave_it_to_its_parent(watched, path, function, text):
    net, definitions = watched
    line = definitions.modules[net.get_submodule(path)]
    assert line.code.co_filename == __file__
    assert line.number == line_of(function.__init__, text)


@pytest.mark.parametrize(
    ("name", "function", "text"),
    [
        ("block.scale", Block, "self.scale ="),
        ("block.shift", Block, 'register_parameter("shift"'),
        ("block.linear.weight", Block, "self.linear ="),
        ("head.bias", Net, 'add_module("head"'),
        ("weights.0", Net, "self.weights ="),
    ],
)
def test_a_parameter_has_the_users_line_that_made_it(watched, name, function, text):
    net, definitions = watched
    made = definitions.registration(net.get_parameter(name))
    assert made.line.number == line_of(function.__init__, text)
    assert made.name == name.rpartition(".")[2]
    assert made.module() is net.get_submodule(name.rpartition(".")[0])


def test_what_is_given_to_several_modules_keeps_its_first_line():
    def tie():
        net = Net()
        net.again = net.head
        net.head.extra = net.block.scale
        return net

    with watch_definitions() as definitions:
        net = tie()
    assert definitions.modules[net.head].number == line_of(Net.__init__, 'add_module("head"')
    scale = definitions.registration(net.block.scale)
    assert (scale.name, scale.line.number) == ("scale", line_of(Block.__init__, "self.scale ="))
    assert definitions.replacement(net.block.scale) is None


def test_what_takes_the_place_of_a_module_is_told_from_what_was_there_before():
    def replace(net):
        net.head = nn.Linear(2, 3)

    with watch_definitions() as definitions:
        net = Net()
        old = net.head
        replace(net)
    line = line_of(replace, "net.head =")
    assert definitions.replacements[net.head].number == line
    assert old not in definitions.replacements
    lost = definitions.replacement(old.weight)
    assert (lost.module(), lost.name, lost.line.number) == (net, "head.weight", line)
    assert definitions.replacement(net.head.weight) is None


def test_what_takes_the_place_of_a_parameter_is_told_from_what_was_there_before():
    def replace(block):
        block.scale = nn.Parameter(torch.zeros(2))

    with watch_definitions() as definitions:
        block = Block()
        old = block.scale
        replace(block)
    lost = definitions.replacement(old)
    assert (lost.name, lost.line.number) == ("scale", line_of(replace, "block.scale ="))
    assert definitions.replacement(block.scale) is None


def test_giving_a_module_the_same_part_again_replaces_nothing():
    with watch_definitions() as definitions:
        net = Net()
        net.head = net.head
        net.block.scale = net.block.scale
    assert net.head not in definitions.replacements
    assert definitions.replacement(net.head.weight) is None
    assert definitions.replacement(net.block.scale) is None


def test_a_layer_of_a_container_is_replaced_by_its_place():
    def replace(net):
        net.layers[1] = nn.Identity()

    with watch_definitions() as definitions:
        net = Net()
        old = net.layers[1]
        replace(net)
    assert definitions.replacements[net.layers[1]].number == line_of(replace, "net.layers[1]")
    assert definitions.replacement(old.bias).name == "1.bias"


class Scheduled(torch.optim.SGD):
    """A class of optimizers of the user's own."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)


def test_an_optimizer_has_the_line_that_made_it():
    def make(net):
        return (
            torch.optim.AdamW(net.parameters()),
            Scheduled(net.parameters()),
        )

    with watch_definitions() as definitions:
        made = make(nn.Linear(2, 2))
    assert tuple(definitions.optimizers) == made
    lines = [construction.line.number for construction in definitions.optimizers.values()]
    assert lines == [line_of(make, text) for text in ("optim.AdamW(", "Scheduled(net")]


def test_orders_tell_what_was_made_before_an_optimizer():
    with watch_definitions() as definitions:
        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.extra = nn.Parameter(torch.ones(1))
    before, after = map(definitions.registration, (net.weight, net.extra))
    assert before.order < definitions.optimizers[optimizer].order < after.order


def test_what_was_made_before_or_after_is_not_known():
    before = nn.Linear(2, 2)
    with watch_definitions() as definitions:
        pass
    after = Net()
    optimizer = torch.optim.SGD(after.parameters(), lr=0.1)
    assert definitions.registration(before.weight) is None
    assert definitions.registration(after.head.weight) is None
    assert after.head not in definitions.modules
    assert optimizer not in definitions.optimizers


def test_a_copy_is_made_by_the_line_that_copies():
    with watch_definitions() as definitions:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        twin = copy.deepcopy(net)
    here = test_a_copy_is_made_by_the_line_that_copies
    assert definitions.modules[net.head].code is Net.__init__.__code__
    assert definitions.modules[twin.head].number == line_of(here, "twin = " + "copy.")
    made = definitions.registration(twin.head.weight)
    assert made.line == definitions.modules[twin.head]
    assert made.order > definitions.optimizers[optimizer].order


def test_a_loaded_module_is_made_by_the_line_that_loads(tmp_path):
    torch.save(nn.BatchNorm1d(3), tmp_path / "norm.pt")
    with watch_definitions() as definitions:
        norm = torch.load(tmp_path / "norm.pt", weights_only=False)
    assert definitions.modules[norm].code is sys._getframe().f_code


def test_nothing_is_kept_alive(watched):
    _, definitions = watched
    with watch_definitions() as others:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    del net, optimizer
    gc.collect()
    assert (len(others.modules), len(others.parameters), len(others.optimizers)) == (0, 0, 0)
    assert len(definitions.modules) > 0


def test_nothing_is_left_behind_when_the_users_code_raises():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)
            raise KeyError

    original = torch.optim.Optimizer.__init__
    with pytest.raises(KeyError), watch_definitions():
        Broken()
    assert torch.optim.Optimizer.__init__ is original
    assert not nn.modules.module._global_module_registration_hooks
    assert not nn.modules.module._global_parameter_registration_hooks


def test_optimizers_work_as_they_do_unwatched():
    def train():
        torch.manual_seed(0)
        net = nn.Linear(2, 1)
        optimizer = torch.optim.AdamW([{"params": net.parameters(), "lr": 0.1}], weight_decay=0.5)
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        return net.weight.detach(), optimizer.state_dict()["param_groups"]

    weight, groups = train()
    with watch_definitions():
        watched_weight, watched_groups = train()
    assert torch.equal(weight, watched_weight)
    assert groups == watched_groups


def test_watches_may_lie_within_each_other():
    with watch_definitions() as outer:
        first = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        with watch_definitions() as inner:
            second = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert tuple(outer.optimizers) == (first, second)
    assert tuple(inner.optimizers) == (second,)


def test_without_a_watch_nothing_is_known():
    assert Definitions().registration(nn.Parameter(torch.ones(1))) is None
    assert Definitions().replacement(nn.Parameter(torch.ones(1))) is None
