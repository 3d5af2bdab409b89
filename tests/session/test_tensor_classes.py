"""Tensor subclasses that store elements elsewhere, such as distributed and quantized ones."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import gradscope

REFUSED = {"nonzero", "isfinite", "aminmax"}


class Sharded(Tensor):
    """Computes, and does not show its elements."""

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in REFUSED:
            raise RuntimeError("no sharding strategy")
        args, kwargs = tree_map(lambda x: x.inner if isinstance(x, Sharded) else x, (args, kwargs))
        result = func(*args, **(kwargs or {}))
        return tree_map(lambda x: Sharded(x) if isinstance(x, Tensor) else x, result)


@pytest.mark.parametrize("probe_steps", [0, 3])
def test_parameters_that_do_not_show_their_elements(probe_steps):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].weight = nn.Parameter(Sharded(model[2].weight.detach()))
    before = model[2].weight.inner.clone()
    report = gradscope.inspect(
        model,
        torch.randn(5, 6),
        lambda model, batch: model(batch).square().mean(),
        probe_steps=probe_steps,
    )
    assert [finding.rule for finding in report.findings] == []
    rows = {row.name: row for row in report.parameters}
    assert torch.equal(model[2].weight.inner, before)
    assert model[2].weight.grad is None
    assert rows["2.weight"].grad is None
    assert rows["2.weight"].reason == "a `Sharded` does not show its elements"
