"""Modules that do not behave like modules."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from tests.capture.small_models import Through, batch, squares


class CallOverridden(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def __call__(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class AnswersEverything(nn.Module):
    """Every attribute exists."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def __getattr__(self, name: str) -> object:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return lambda *args: 5

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class RaisesForTheUnknown(AnswersEverything):
    """Attributes that do not exist raise an error of the user's own."""

    def __getattr__(self, name: str) -> object:
        if name in vars(self)["_modules"]:
            return vars(self)["_modules"][name]
        raise RuntimeError(name)


class WithSlots(nn.Module):
    __slots__ = ("calls",)

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x)


class InACycle(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.__dict__["parents"] = [self]

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class ComparesByValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return 1

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize(
    "build",
    [
        CallOverridden,
        AnswersEverything,
        RaisesForTheUnknown,
        WithSlots,
        InACycle,
        ComparesByValue,
        lambda: nn.DataParallel(nn.Linear(4, 4)),
        lambda: nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(4, 4)))),
        lambda: nn.Sequential(*[nn.Identity()] * 5, nn.Linear(4, 4)),
    ],
    ids=[
        "call overridden",
        "answers everything",
        "raises for the unknown",
        "slots",
        "cycle",
        "compares by value",
        "data parallel",
        "nested",
        "one identity many times",
    ],
)
def test_unusual_modules(watch_and_compare, build):
    seen = watch_and_compare(build, squares)
    assert {stat.reach for stat in seen.recording.parameter_stats} == {"gradient"}


def test_module_that_calls_itself(watch_and_compare):
    class Recursive(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int = 3) -> Tensor:
            return self.linear(self(x, depth - 1).tanh()) if depth else x

    seen = watch_and_compare(Recursive, squares)
    parents = [None if c.parent is None else seen.call_name(c.parent) for c in seen.calls("")]
    assert parents == [None, "#0", "#1", "#2"]


def test_part_of_the_forward_in_another_thread(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            y = pool.submit(lambda: self.second(x).tanh()).result()
        return y.relu()

    seen = watch_and_compare(lambda: Through(then, second=nn.Linear(4, 4)), squares)
    assert seen.module("ReluBackward0") == ["#0"]
    assert seen.parameter("second.weight").reach == "gradient"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantised_layer_passes_gradients_by(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)

    seen = watch_and_compare(lambda: Through(then), squares)
    assert seen.nodes("FakeQuantizePerTensorAffineCachemaskBackward0")


def test_loss_is_a_parameter(watch_and_compare):
    seen = watch_and_compare(lambda: nn.ParameterList([torch.tensor(2.0)]), lambda model: model[0])
    assert seen.parameter("0").gradient.norm == 1


def test_backward_from_a_vector(watch):
    model = nn.Linear(4, 3, bias=False)
    x, vector = batch(), batch(3, 3)
    seen = watch(model, lambda: model(x), grad_output=vector)
    expected = (vector.double().T @ x.double()).norm().item()
    assert seen.parameter("weight").gradient.norm == pytest.approx(expected, rel=1e-6)
