"""Attributes that a module draws at random, found in its source."""

import importlib.util
import sys

import pytest
from torch import nn

from gradscope.capture.ranks.buffers import drawn_at

MODULE = """
import numpy as np
import torch
from torch import nn

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.inherited = torch.rand(4)  # inherited

class Own(Base):
    def __init__(self):
        super().__init__()
        self.plain = 2 * torch.randn(3, 4)  # plain
        self.register_buffer("buffer", torch.from_numpy(np.random.normal(size=4)))  # buffer
        basis = torch.empty(4, 4)
        nn.init.orthogonal_(basis)
        turned = basis.T
        self.through = turned  # through
        self.table = torch.arange(8).cos()
        self.register_buffer("mask", torch.ones(4))
        self.other = self.make(torch.zeros(4))
        self.data = torch.rand(64, 4)

    def training_step(self, at):
        return self(self.data[at])

    def forward(self, x):
        return self.encode(x @ self.plain.T + self.inherited) + self.buffer + self.table

    def encode(self, x):
        return x * self.mask * self.other @ self.through
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Returns a class with attributes of several kinds, and the lines of its source."""
    path = tmp_path / "drawing_modules.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("drawing_modules", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "drawing_modules", module)
    spec.loader.exec_module(module)
    return module.Own, MODULE.splitlines()


@pytest.mark.parametrize("name", ["plain", "buffer", "through", "inherited"])
def test_the_line_of_a_random_attribute_is_found(own, name):
    kind, lines = own
    line = drawn_at(kind, name)
    assert lines[line.number - 1].endswith(f"# {name}")


@pytest.mark.parametrize("name", ["table", "mask", "other", "missing", "data"])
def test_attributes_that_are_not_random_or_not_of_the_forward_are_left_out(own, name):
    assert drawn_at(own[0], name) is None


def test_modules_of_torch_are_left_out():
    assert drawn_at(nn.Linear, "weight") is None
