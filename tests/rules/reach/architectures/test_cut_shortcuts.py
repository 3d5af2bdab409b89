"""GS216: residual blocks with a detached shortcut, and other sums with a detached tensor."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

G = torch.Generator().manual_seed(0)
BATCH = torch.randn(16, 6, generator=G), torch.randint(3, (16,), generator=G)


class Block(nn.Module):
    def __init__(self, add):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), nn.ReLU())
        self.add = add

    def forward(self, x):
        return self.add(x, self.layers)


class Stack(nn.Module):
    def __init__(self, add, blocks):
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 12), nn.Linear(12, 3)
        self.blocks = nn.ModuleList(Block(add) for _ in range(blocks))

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


def told(add, *, blocks=3):
    torch.manual_seed(0)
    loss = functional.cross_entropy
    found = gradscope.inspect(Stack(add, blocks), BATCH, loss).findings
    return [one for one in found if one.rule == "GS216" and one.severity != "note"]


def detached(x, layers):
    return x.detach() + layers(x)


def detached_last(x, layers):
    shortcut = x.detach()
    return layers(x) + shortcut


@pytest.mark.parametrize("add", some_on_push([detached, detached_last], 1))
def test_blocks_with_a_detached_shortcut_are_a_warning(add):
    (found,) = told(add)
    assert found.severity == "warning"
    assert "detach()" in found.message


def test_a_single_block_is_no_warning():
    assert not told(detached, blocks=1)


def kept(x, layers):
    return x + layers(x)


def cut_for_both(x, layers):
    x = x.detach()
    return x + layers(x)


def straight_through(x, layers):
    rounded = x.round()
    return layers(x + (rounded - x).detach())


def scaled(x, layers):
    return layers(0.1 * x + 0.9 * x.detach())


@pytest.mark.parametrize(
    "add", some_on_push([kept, cut_for_both, straight_through, scaled], {2, 3})
)
def test_other_sums_are_no_warning(add):
    assert not told(add)
