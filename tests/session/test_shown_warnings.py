"""Warnings of an inspected program are shown once, at the program's line."""

import inspect
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope

TEXT = "Using a target size"
BATCH = torch.ones(4, 3), torch.ones(4)


def broadcasting(output, target):
    return functional.mse_loss(output, target)  # here


def line():
    source, first = inspect.getsourcelines(broadcasting)
    return first + next(i for i, text in enumerate(source) if text.endswith("# here\n"))


@pytest.fixture
def shown():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield lambda: [one for one in seen if str(one.message).startswith(TEXT)]


def test_a_warning_names_the_line_that_calls_torch_and_is_shown_once(shown):
    before = warnings._showwarnmsg
    gradscope.inspect(nn.Linear(3, 1), BATCH, broadcasting)
    assert [(one.filename, one.lineno) for one in shown()] == [(__file__, line())]
    assert warnings._showwarnmsg is before


def test_warnings_of_two_texts_at_one_line_are_both_shown(shown):
    calls = []

    def loss(output, target):
        calls.append(1)
        warnings.warn(f"{TEXT} {len(calls) % 2}", stacklevel=1)
        return functional.mse_loss(output.squeeze(-1), target)

    gradscope.inspect(nn.Linear(3, 1), BATCH, loss)
    assert len(calls) > 2
    assert sorted(str(one.message) for one in shown()) == [f"{TEXT} 0", f"{TEXT} 1"]


def test_a_program_that_records_its_warnings_gets_each_of_them():
    recorded = []

    def loss(output, target):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            value = functional.mse_loss(output, target)
        recorded.append([str(one.message)[: len(TEXT)] for one in seen])
        return value

    gradscope.inspect(nn.Linear(3, 1), BATCH, loss)
    assert len(recorded) > 1
    assert all(texts == [TEXT] for texts in recorded)
