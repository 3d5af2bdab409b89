"""Every node of a forward is attributed to its line and module."""

import functools
import inspect
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


def line_of(function, text: str, nth: int = 0) -> int:
    """The number of the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return [first + position for position, line in enumerate(lines) if text in line][nth]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.other = nn.Parameter(torch.randn(4, 4))
        self.inner = nn.Linear(4, 4)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def attributed(model, watch):
    """Returns a check that all nodes of an operation come from the line that holds a text."""

    def check(forward, operation: str, text: str, nth: int = 0) -> None:
        seen = watch(model, lambda: forward(model))
        site = seen.site(operation)
        assert site is not None
        assert site.file == str(Path(__file__))
        assert site.line == line_of(forward, text, nth), site.source
        assert text in site.source

    return check


def test_operators_on_one_line(attributed):
    def forward(model) -> Tensor:
        x = model.weight
        y = x @ model.other + x  # here
        return y.sum()

    attributed(forward, "MmBackward0", "# here")
    attributed(forward, "AddBackward0", "# here")
    attributed(forward, "SumBackward0", "return")


def test_call_over_several_lines(attributed):
    def forward(model) -> Tensor:
        x = model.weight
        y = torch.addmm(
            x,
            model.other,
            x.relu(),  # argument
        )
        return y.sum()

    attributed(forward, "AddmmBackward0", "torch.addmm(")
    attributed(forward, "ReluBackward0", "# argument")


def test_chain_of_methods_over_several_lines(attributed):
    def forward(model) -> Tensor:
        return (
            model.weight.sin()  # first
            .cos()  # second
            .sum()  # third
        )

    attributed(forward, "SinBackward0", "# first")
    attributed(forward, "CosBackward0", "# second")
    attributed(forward, "SumBackward0", "# third")


def test_comprehension(attributed):
    def forward(model) -> Tensor:
        rows = [
            row.exp()  # in the comprehension
            for row in model.weight
        ]
        return torch.stack(rows).sum()

    attributed(forward, "ExpBackward0", "# in the comprehension")
    attributed(forward, "StackBackward0", "torch.stack")


def test_generator_is_run_where_it_is_written(attributed):
    def forward(model) -> Tensor:
        parts = (p.exp() for p in (model.weight, model.other))  # written
        return sum(part.sum() for part in parts)

    attributed(forward, "ExpBackward0", "# written")


def test_lambda(attributed):
    def forward(model) -> Tensor:
        square = lambda x: x.square()  # noqa: E731
        return square(model.weight).sum()

    attributed(forward, "PowBackward0", "square = lambda")


def test_decorated_function(attributed):
    def forward(model) -> Tensor:
        def twice(function):
            @functools.wraps(function)
            def wrapper(x: Tensor) -> Tensor:
                return function(x) * 2  # in the wrapper

            return wrapper

        @twice
        def decorated(x: Tensor) -> Tensor:
            return x.tanh()  # inside

        return decorated(model.weight).sum()

    attributed(forward, "TanhBackward0", "# inside")
    attributed(forward, "MulBackward0", "# in the wrapper")


@torch.enable_grad()
def under_torch_decorator(x: Tensor) -> Tensor:
    return x.tanh()  # inside


def test_function_under_a_decorator_of_torch(model, watch):
    site = watch(model, lambda: under_torch_decorator(model.weight).sum()).site("TanhBackward0")
    assert site.source == "return x.tanh()  # inside"
    assert site.function == "under_torch_decorator"


def test_callback_handed_to_torch_is_the_users_line(attributed):
    def forward(model) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            return x.tanh()  # callback

        return torch.utils.checkpoint.checkpoint(inner, model.weight, use_reentrant=False).sum()

    attributed(forward, "TanhBackward0", "# callback")


def test_in_place_operators(attributed):
    def forward(model) -> Tensor:
        x = model.weight.clone()
        x += model.other  # add
        x.mul_(3)  # mul
        x /= 2  # div
        return x.sum()

    attributed(forward, "AddBackward0", "# add")
    attributed(forward, "MulBackward0", "# mul")
    attributed(forward, "DivBackward0", "# div")


def test_slices_assigned_into(attributed):
    def forward(model) -> Tensor:
        x = model.weight.clone()
        x[0] = model.other[1].sin()  # assigned
        return x.sum()

    attributed(forward, "CopySlices", "# assigned")
    attributed(forward, "SinBackward0", "# assigned")


def test_indexing(attributed):
    def forward(model) -> Tensor:
        a = model.weight[1]  # select
        b = model.weight[1:3]  # slice
        c = model.weight[torch.tensor([0, 2])]  # index
        d = model.weight[model.weight > 0]  # mask
        return a.sum() + b.sum() + c.sum() + d.sum() * 0

    attributed(forward, "SelectBackward0", "# select")
    attributed(forward, "SliceBackward0", "# slice")


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ("GeluBackward0", "F.gelu"),
        ("NativeLayerNormBackward0", "F.layer_norm"),
        ("LogSoftmaxBackward0", "F.cross_entropy"),
        ("NllLossBackward0", "F.cross_entropy"),
    ],
)
def test_functional_composites(attributed, operation, text):
    def forward(model) -> Tensor:
        x = F.gelu(model.weight)
        x = F.layer_norm(x, (4,))
        return F.cross_entropy(x, torch.tensor([0, 1, 2, 3]))

    attributed(forward, operation, text)


def test_attributes_and_reflected_operators(attributed):
    def forward(model) -> Tensor:
        x = 1 / model.weight.exp()  # reflected
        return x.T.mT.abs().sum()  # attributes

    attributed(forward, "ReciprocalBackward0", "# reflected")
    attributed(forward, "AbsBackward0", "# attributes")


def test_with_statement_and_walrus(attributed):
    def forward(model) -> Tensor:
        with torch.enable_grad():
            if (y := model.weight.sigmoid()) is not None:  # walrus
                y = y.log()  # in the block
        return y.sum()

    attributed(forward, "SigmoidBackward0", "# walrus")
    attributed(forward, "LogBackward0", "# in the block")


def test_einsum_and_other_composites_are_one_line(attributed):
    def forward(model) -> Tensor:
        y = torch.einsum("ij,kj->ik", model.weight, model.other)  # einsum
        return y.sum()

    attributed(forward, "BmmBackward0", "# einsum")


def test_modules_of_torch_show_the_line_that_calls_them(attributed):
    def forward(model) -> Tensor:
        hidden = model.inner(model.weight)  # call
        return nn.functional.relu(hidden).sum()

    attributed(forward, "AddmmBackward0", "# call")
    attributed(forward, "ReluBackward0", "nn.functional.relu")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient * 2


class Identity(torch.autograd.Function):
    """Its forward calls no torch function."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient


class ThroughNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient * 2


class WithContext(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient


@pytest.mark.parametrize(
    "function", [Doubled, Identity, ThroughNumpy, WithContext], ids=lambda f: f.__name__
)
def test_custom_function_is_the_line_of_apply(attributed, function):
    def forward(model) -> Tensor:
        x = model.weight.sin()
        y = function.apply(x)  # apply
        return y.cos().sum()

    attributed(forward, f"{function.__name__}Backward", "# apply")
    attributed(forward, "CosBackward0", "return y.cos()")


class Interleaved(nn.Module):
    """Functional operations before, between and after the calls of submodules."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.sin()).relu()
        x = self.second(x).tanh()
        return self.first(x).exp()


def test_functional_operations_belong_to_the_module_that_runs_them(watch):
    model = nn.Sequential(Interleaved(), nn.Sigmoid())
    batch = torch.randn(2, 4, requires_grad=True)
    seen = watch(model, lambda: model(batch).log().sum())
    expected = {
        "SinBackward0": ["0#0"],
        "ReluBackward0": ["0#0"],
        "TanhBackward0": ["0#0"],
        "ExpBackward0": ["0#0"],
        "SigmoidBackward0": ["1#0"],
        "AddmmBackward0": ["0.first#0", "0.second#0", "0.first#1"],
        "LogBackward0": [None],
        "SumBackward0": [None],
    }
    assert {operation: seen.module(operation) for operation in expected} == expected


def test_calls_are_nested_as_they_were_made(watch):
    model = nn.Sequential(Interleaved(), nn.Sequential(Interleaved()))
    seen = watch(model, lambda: model(torch.randn(2, 4)).sum())
    parents = {
        seen.call_name(call.index): None if call.parent is None else seen.call_name(call.parent)
        for call in seen.recording.calls
    }
    assert parents == {
        "#0": None,
        "0#0": "#0",
        "0.first#0": "0#0",
        "0.second#0": "0#0",
        "0.first#1": "0#0",
        "1#0": "#0",
        "1.0#0": "1#0",
        "1.0.first#0": "1.0#0",
        "1.0.second#0": "1.0#0",
        "1.0.first#1": "1.0#0",
    }


def test_every_node_of_a_small_model_has_its_line(watch):
    model = nn.Sequential(Interleaved(), nn.Sigmoid())
    seen = watch(model, lambda: model(torch.randn(2, 4)).sum())
    unknown = [
        node.operation
        for node in seen.recording.nodes
        if node.site is None and node.kind != "parameter"
    ]
    assert unknown == []


def test_code_without_a_file_has_its_line(watch):
    scope: dict[str, object] = {}
    exec(compile("def forward(x):\n    return x.tanh()\n", "<cell 3>", "exec"), scope)
    model = Model()
    site = watch(model, lambda: scope["forward"](model.weight).sum()).site("TanhBackward0")
    assert (site.file, site.line, site.function, site.source) == ("<cell 3>", 2, "forward", "")
