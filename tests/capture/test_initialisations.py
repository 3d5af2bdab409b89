"""Tests the recorded line that initialized a parameter."""

import linecache
import sys

import pytest
import torch
from torch import nn

from gradscope.capture.source.definitions import watch_initialisations


def here() -> int:
    return sys._getframe(1).f_lineno


def test_the_last_line_of_the_user_counts():
    with watch_initialisations() as found:
        layer = nn.Linear(3, 3)
        made = found.of(layer.weight)
        nn.init.normal_(layer.weight)
        nn.init.xavier_uniform_(layer.weight)
        line = here() - 1
    assert linecache.getline(__file__, made.line.number).strip() == "layer = nn.Linear(3, 3)"
    assert (found.of(layer.weight).function, found.of(layer.weight).line.number) == (
        "xavier_uniform_",
        line,
    )
    assert found.of(layer.bias).line == made.line


def test_data_of_a_parameter_is_its_parameter():
    with watch_initialisations() as found:
        layer = nn.Linear(3, 3)
        nn.init.zeros_(layer.weight.data)
        assert found.of(layer.weight).function == "zeros_"
        nn.init.ones_(layer.weight)
    assert found.of(layer.weight).function == "ones_"


def test_a_tensor_in_the_memory_of_a_former_one_is_another():
    with watch_initialisations() as found:
        for _ in range(20):
            former = torch.empty(64, 64)
            nn.init.zeros_(former)
            address = former.data_ptr()
            del former
            parameter = nn.Parameter(torch.rand(64, 64))
            if parameter.data_ptr() == address:
                break
        else:
            pytest.skip("no memory was used again")
    assert found.of(parameter) is None


def test_values_and_functions_are_as_without_it():
    before = dict(vars(nn.init))
    torch.manual_seed(0)
    plain = nn.init.kaiming_normal_(torch.empty(4, 4))
    torch.manual_seed(0)
    with watch_initialisations() as found:
        watched = nn.init.kaiming_normal_(torch.empty(4, 4))
    assert torch.equal(plain, watched)
    assert vars(nn.init) == before
    assert found.of(nn.Parameter(torch.zeros(1))) is None


def test_tensors_without_memory_do_no_harm():
    with watch_initialisations() as found:
        layer = nn.Linear(3, 3, device="meta")
        nn.init.ones_(layer.weight)
    assert found.of(layer.weight).function == "ones_"
