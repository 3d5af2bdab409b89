"""Parameters that are shared, frozen, unreached, hidden or empty."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from gradscope.capture.naming import name_model
from gradscope.errors import GradscopeError
from tests.capture.small_models import Through, batch, squares


def test_tied_weights_are_one_parameter_with_all_names(watch_and_compare):
    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        return model

    seen = watch_and_compare(build, squares)
    names = {record.name: record.aliases for record in seen.recording.parameters}
    assert names == {"0.weight": ("2.weight",), "0.bias": (), "2.bias": ()}


def test_shared_module_has_all_names_and_a_call_each(watch_and_compare):
    def build() -> nn.Module:
        shared = nn.Linear(4, 4)
        return nn.ModuleDict({"a": shared, "b": nn.Sequential(nn.Tanh(), shared)})

    seen = watch_and_compare(build, lambda m: m["b"](m["a"](batch())).square().mean())
    names = {record.name: record.aliases for record in seen.recording.parameters}
    assert names == {"a.weight": ("b.1.weight",), "a.bias": ("b.1.bias",)}
    module = next(m for m in seen.recording.modules if m.path == "a")
    assert module.aliases == ("b.1",)
    assert [call.call for call in seen.calls("a")] == [0, 1]
    outer = [None if c.parent is None else seen.call_name(c.parent) for c in seen.calls("a")]
    assert outer == [None, "b#0"]


def test_module_called_many_times_has_its_gradient_for_every_call(watch):
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 3.0)
    seen = watch(model, lambda: model(model(model(torch.ones(1, 1)))).sum())
    assert [seen.output_norm(call) for call in seen.calls("")] == [9, 3, 1]


def test_weight_used_without_calling_its_module_is_reached(watch_and_compare):
    def forward(model) -> Tensor:
        return F.linear(batch(), model[0].weight, model[1].bias).square().mean()

    seen = watch_and_compare(lambda: nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), forward)
    reach = {r.name: seen.parameter(r.name).reach for r in seen.recording.parameters}
    assert reach == {
        "0.weight": "gradient",
        "0.bias": "none",
        "1.weight": "none",
        "1.bias": "gradient",
    }
    assert "never called" in seen.parameter("0.bias").reason


def test_forward_called_by_name_is_seen_as_its_parents(watch_and_compare):
    seen = watch_and_compare(
        lambda: Through(lambda self, x: self.head.forward(x), head=nn.Linear(4, 4)), squares
    )
    assert seen.calls("head") == []
    assert seen.parameter("head.weight").reach == "gradient"
    assert seen.module("AddmmBackward0") == ["first#0", "#0"]


def test_frozen_parameter_is_frozen_not_zero_and_passes_gradients_on(watch_and_compare):
    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].requires_grad_(False)
        return model

    seen = watch_and_compare(build, squares)
    assert seen.parameter("1.weight").reach == "frozen"
    assert seen.parameter("1.weight").gradient is None
    assert seen.parameter("0.weight").reach == "gradient"


def test_frozen_parameter_with_a_leftover_gradient_is_frozen(watch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    model[0].weight.grad = torch.ones(4, 4)
    seen = watch(model, lambda: squares(model))
    assert seen.parameter("0.weight").reach == "frozen"
    assert seen.parameter("0.weight").gradient is None


def test_leftover_gradient_of_an_unreached_parameter_is_not_taken_for_this_steps(watch):
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model[1].weight.grad = torch.ones(4, 4)
    seen = watch(model, lambda: model[0](batch()).sum())
    assert seen.parameter("1.weight").reach == "none"
    assert seen.parameter("1.weight").gradient is None


def test_gradients_accumulate_as_without_gradscope(watch):
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[3.0, 4.0]])
    for step in (1, 2, 3):
        seen = watch(model, lambda: model(x).sum())
        assert torch.equal(model.weight.grad, x * step)
        assert seen.parameter("weight").gradient.norm == pytest.approx(5 * step)


def test_unused_parameter_reached_with_zero_is_zero(watch_and_compare):
    seen = watch_and_compare(
        lambda: nn.ParameterList([torch.ones(2), torch.ones(2)]),
        lambda model: (model[0] + 0 * model[1]).sum(),
    )
    assert seen.parameter("1").reach == "zero"
    assert seen.parameter("1").gradient.zero_share == 1


def test_leaf_outside_the_model_is_a_leaf(watch_and_compare):
    outside = torch.randn(4, requires_grad=True)
    seen = watch_and_compare(
        lambda: nn.Linear(4, 4), lambda model: (model(batch()) * outside).sum()
    )
    (leaf,) = [node for node in seen.recording.nodes if node.kind == "leaf"]
    assert leaf.parameter is None
    assert seen.gradient(leaf) is not None


def test_buffer_that_requires_grad_is_a_leaf(watch_and_compare):
    def build() -> nn.Module:
        model = Through(lambda self, x: x * self.scale)
        model.register_buffer("scale", torch.randn(4, requires_grad=True))
        return model

    seen = watch_and_compare(build, squares)
    assert [node.kind for node in seen.recording.nodes].count("leaf") == 1


def test_layers_in_a_plain_list_are_called_outside_the_model(watch_and_compare):
    seen = watch_and_compare(
        lambda: Through(
            lambda self, x: self.hidden[0].lin(x).relu(),
        ),
        lambda model: _with_hidden(model)(batch()).sum(),
    )
    outside = [module for module in seen.recording.modules if not module.in_model]
    assert [module.class_name for module in outside] == ["Linear"]
    assert [node.kind for node in seen.recording.nodes].count("leaf") == 2


def _with_hidden(model: nn.Module) -> nn.Module:
    model.hidden = [SimpleNamespace(lin=nn.Linear(4, 4))]
    return model


def test_parameter_containers(watch_and_compare):
    def build() -> nn.Module:
        values = nn.ParameterList([torch.randn(4), torch.randn(4)])
        named = nn.ParameterDict({"scale": torch.randn(4), "unused": torch.randn(4)})
        return Through(
            lambda self, x: sum(x * p for p in self.values) * self.named["scale"],
            values=values,
            named=named,
        )

    seen = watch_and_compare(build, squares)
    assert seen.parameter("named.unused").reach == "none"
    assert seen.parameter("values.1").reach == "gradient"


def test_empty_parameter_has_a_reason(watch_and_compare):
    seen = watch_and_compare(
        lambda: nn.ParameterList([torch.zeros(0, 3), torch.ones(2)]),
        lambda model: model[0].sum() + model[1].sum(),
    )
    assert seen.parameter("0").gradient is None
    assert seen.parameter("0").reason == "it has no elements"


def test_lazy_module_asks_for_a_first_run():
    with pytest.raises(GradscopeError, match=r"`0\.weight` has no shape yet"):
        name_model(nn.Sequential(nn.LazyLinear(3)), None)


def test_lazy_module_after_its_first_run(watch_and_compare):
    def build() -> nn.Module:
        model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
        model(torch.ones(2, 4))
        return model

    watch_and_compare(build, squares)
