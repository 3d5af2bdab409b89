"""Optimizers and losses that share a line, each with its own name."""

import pytest
import torch
from torch import nn

from gradscope.recording.evidence.training import TrainedOptimizer
from tests.nightly import some_on_push


def names_of(made):
    return [one.name for one in made.recording.evidence_of(TrainedOptimizer)]


# fmt: off
def in_a_tuple(one, two):
    first, second = torch.optim.SGD(one.parameters()), torch.optim.SGD(two.parameters())
    return first, second


def in_two_statements(one, two):
    first = torch.optim.SGD(one.parameters()); second = torch.optim.SGD(two.parameters())  # noqa: E702
    return first, second


def in_a_list(one, two):
    opts = [torch.optim.SGD(one.parameters()), torch.optim.SGD(two.parameters())]
    return opts


def in_a_dictionary(one, two):
    opts = {"gen": torch.optim.SGD(one.parameters()), "disc": torch.optim.SGD(two.parameters())}
    return opts.values()


def with_two_names(one, two):
    first = alias = torch.optim.SGD(one.parameters())
    second = torch.optim.SGD(two.parameters())
    assert first is alias
    return alias, second
# fmt: on


@pytest.mark.parametrize(
    ("make", "names"),
    some_on_push(
        [
            (in_a_tuple, ["first", "second"]),
            (in_two_statements, ["first", "second"]),
            (in_a_list, ["opts[0]", "opts[1]"]),
            (in_a_dictionary, ["opts['gen']", "opts['disc']"]),
            (with_two_names, ["first", "second"]),
        ],
        2,
    ),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_optimizers_made_on_one_line_have_their_own_names(run, make, names):
    def loop():
        one, two = nn.Linear(4, 4), nn.Linear(4, 1)
        made = make(one, two)
        two(one(torch.randn(5, 4))).mean().backward()
        for optimizer in made:
            optimizer.step()

    assert names_of(run(loop)) == names


def test_statements_on_one_line_have_their_own_subjects(run):
    def loop():
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters())
        first, second = model(torch.randn(5, 4)).mean(dim=0)
        # fmt: off
        first.backward(retain_graph=True); second.backward()  # noqa: E702
        # fmt: on
        optimizer.step()

    made = run(loop)
    assert [event.subject for event in made.events("backward")] == ["first", "second"]
