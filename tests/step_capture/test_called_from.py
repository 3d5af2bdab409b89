"""Warnings of a script's calls name the script's lines, also during captures."""

import warnings

import pytest
import torch
from torch import nn

import gradscope
from gradscope.capture.source.statements import compiled, parsed


def warned(train):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        globals().pop("__warningregistry__", None)
        train()
    return [(one.filename, one.lineno, str(one.message)[:20]) for one in found]


def train():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        nn.functional.mse_loss(model(torch.ones(8, 4)), torch.ones(8)).backward()  # broadcasts
        torch.tensor(torch.ones(2))
        torch.tensor(torch.ones(2))
        optimizer.step()
        optimizer.zero_grad()


def test_warnings_are_those_of_an_unwatched_script():
    def watched():
        with gradscope.watch(tensor_every=1) as watch:
            train()
        assert watch.report().recording.captured_steps

    plain = warned(train)
    assert len(plain) == 3  # each line once
    assert {file for file, *_ in plain} == {__file__}
    assert warned(watched) == plain


class Memory(nn.Module):
    """Keeps states in a frozen parameter, which is no leaf while they have a graph."""

    def __init__(self):
        super().__init__()
        self.states = nn.Parameter(torch.zeros(10, 4), requires_grad=False)
        self.cell, self.head = nn.GRUCell(4, 4), nn.Linear(4, 1)

    def forward(self, index, x):
        new = self.cell(x, self.states[index].detach())
        self.states[index] = new
        return self.head(new)


def remember():
    model = Memory()
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=0.01)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randperm(10)[:4], torch.ones(4, 4)).square().mean().backward()
        optimizer.step()
        model.states.detach_()


def test_a_parameter_that_is_no_leaf_for_a_while_gives_no_warning():
    def watched():
        with gradscope.watch(tensor_every=1):
            remember()

    assert warned(remember) == []
    assert warned(watched) == []


@pytest.mark.nightly
def test_exceptions_come_from_the_line():
    with gradscope.watch():
        model = nn.Linear(4, 1)
        try:
            nn.functional.linear(torch.ones(2, 3), model.weight)
        except RuntimeError as error:
            lines = []
            traceback = error.__traceback__
            while traceback is not None:
                lines.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
                traceback = traceback.tb_next
    assert {line for file, line in lines if file == __file__} == {lines[0][1]}


def test_parsing_says_nothing_and_forgets_nothing_that_was_said():
    source = "pattern = '\\d'\n"
    shown = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        before = warnings._filters_mutated  # whoever calls it makes Python forget
        warnings._filters_mutated = lambda: shown.append("forgotten")
        try:
            assert parsed(source) is not None
            assert compiled(source, "some.py") is not None
            assert parsed("%matplotlib") is None
        finally:
            warnings._filters_mutated = before
    assert shown == []
