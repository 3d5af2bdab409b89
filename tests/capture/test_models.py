"""One forward and backward of every mechanism of autograd and nn.Module, against plain torch."""

import collections
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from gradscope.capture.naming import name_model
from gradscope.errors import GradscopeError


class Through(nn.Module):
    """A linear layer, then whatever a test wants."""

    def __init__(self, then, **parts: nn.Module):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.then = then
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self, self.first(x))


def batch(*shape: int) -> Tensor:
    return torch.randn(*(shape or (3, 4)))


def squares(model: nn.Module) -> Tensor:
    return model(batch()).square().mean()


# Names and reach


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


# Inputs and outputs of modules


@dataclass
class Pair:
    mean: Tensor
    spread: Tensor
    name: str = "pair"


Named = collections.namedtuple("Named", "mean spread")
CONTAINERS = {
    "dict": lambda a, b: {"mean": a, "deep": {"spread": [b]}},
    "list": lambda a, b: [a, [b, None]],
    "named tuple": lambda a, b: Named(a, b),
    "dataclass": lambda a, b: Pair(a, b),
    "ordered dict": lambda a, b: collections.OrderedDict(mean=a, spread=b),
}


class Container(nn.Module):
    def __init__(self, pack):
        super().__init__()
        self.mean, self.spread, self.pack = nn.Linear(4, 4), nn.Linear(4, 4), pack

    def forward(self, x: Tensor) -> object:
        self.last = self.mean(x), self.spread(x)
        return self.pack(*self.last)


@pytest.mark.parametrize("pack", CONTAINERS.values(), ids=CONTAINERS)
def test_outputs_in_containers(watch_and_compare, pack):
    def forward(model) -> Tensor:
        model(batch())
        mean, spread = model.last
        del model.last
        return (mean * spread).sum()

    seen = watch_and_compare(lambda: Container(pack), forward)
    (call,) = seen.calls("")
    outputs = {seen.call_name(seen.recording.nodes[o.node].module_call) for o in call.outputs}
    assert outputs == {"mean#0", "spread#0"}


def test_model_output_of_transformers(watch_and_compare):
    modeling_outputs = pytest.importorskip("transformers.modeling_outputs")

    def pack(mean: Tensor, spread: Tensor) -> object:
        return modeling_outputs.BaseModelOutput(last_hidden_state=mean, hidden_states=(spread,))

    def forward(model) -> Tensor:
        output = model(batch())
        return (output.last_hidden_state * output.hidden_states[0]).sum()

    def build() -> nn.Module:
        return Container(pack)

    def checked(model) -> Tensor:
        loss = forward(model)
        del model.last
        return loss

    (call,) = watch_and_compare(build, checked).calls("")
    assert len(call.outputs) == 2


def test_keyword_tensors_are_inputs(watch_and_compare):
    class Inner(nn.Module):
        def forward(self, *, left: Tensor, options: dict[str, Tensor]) -> Tensor:
            return left * options["right"]

    def then(self, x: Tensor) -> Tensor:
        return self.inner(left=x, options={"right": x.sin()})

    seen = watch_and_compare(lambda: Through(then, inner=Inner()), squares)
    (call,) = seen.calls("inner")
    operations = [seen.recording.nodes[reference.node].operation for reference in call.inputs]
    assert operations == ["AddmmBackward0", "SinBackward0"]


@pytest.mark.parametrize("how", ["positional", "keyword", "returned"])
def test_containers_that_hold_themselves(watch_and_compare, how):
    class Keeps(nn.Module):
        def forward(self, x: Tensor, cache: dict[str, object]) -> object:
            cache |= {"self": cache, "again": [cache], "x": x}
            return (x.sin(), cache) if how == "returned" else x.sin()

    def then(self, x: Tensor) -> Tensor:
        cache: dict[str, object] = {"x": x}
        cache["self"] = cache
        output = self.keeps(x, cache=cache) if how == "keyword" else self.keeps(x, cache)
        return output[0] if how == "returned" else output

    seen = watch_and_compare(lambda: Through(then, keeps=Keeps()), squares)
    (call,) = seen.calls("keeps")
    assert len(call.outputs) == (2 if how == "returned" else 1)


def test_inputs_are_those_from_before_the_module_wrote_into_them(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        return self.relu(x * 1).exp()

    seen = watch_and_compare(lambda: Through(then, relu=nn.ReLU(inplace=True)), squares)
    (call,) = seen.calls("relu")
    nodes = seen.recording.nodes
    assert [nodes[reference.node].operation for reference in call.inputs] == ["MulBackward0"]
    assert [nodes[reference.node].operation for reference in call.outputs] == ["ReluBackward0"]


# Layers of torch


def test_multihead_attention_reaches_the_projection_that_is_never_called(watch_and_compare):
    def forward(model) -> Tensor:
        x = batch(2, 3, 4)
        return model(x, x, x)[0].square().mean()

    seen = watch_and_compare(lambda: nn.MultiheadAttention(4, 2, batch_first=True), forward)
    assert seen.calls("out_proj") == []
    assert {stat.reach for stat in seen.recording.parameter_stats} == {"gradient"}


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU], ids=lambda layer: layer.__name__)
def test_recurrent_layers(watch_and_compare, layer):
    seen = watch_and_compare(
        lambda: layer(4, 5, num_layers=2, bidirectional=True),
        lambda model: model(batch(6, 2, 4))[0].square().mean(),
    )
    fused = [note for note in seen.recording.skipped if "fused recurrent" in note.reason]
    assert bool(fused) == bool(seen.nodes("MkldnnRnnLayerBackward0"))
    if layer is nn.LSTM:
        assert fused[0].what == "the inside of 4 x MkldnnRnnLayerBackward0"


@pytest.mark.parametrize(
    "build",
    [
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)),
    ],
    ids=["weight_norm", "spectral_norm", "orthogonal", "transformer", "batch norm and dropout"],
)
def test_layers_with_state_of_their_own(watch_and_compare, build):
    watch_and_compare(build, squares)


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_scripted_function_says_what_it_hides(watch_and_compare):
    def doubled_tanh(x: Tensor) -> Tensor:
        return torch.tanh(x) * 2

    scripted = torch.jit.script(doubled_tanh)
    seen = watch_and_compare(lambda: Through(lambda self, x: scripted(x)), squares)
    hidden = seen.nodes("DifferentiableGraphBackward")
    notes = [note.what for note in seen.recording.skipped]
    assert notes == [f"the inside of {len(hidden)} x DifferentiableGraphBackward"] * bool(hidden)


class Marked(Tensor):
    """A subclass that only carries a name."""


@pytest.mark.parametrize("where", ["input", "parameter"])
def test_tensor_subclasses(watch_and_compare, where):
    def build() -> nn.Module:
        model = nn.Linear(4, 4)
        if where == "parameter":
            model.weight = nn.Parameter(torch.randn(4, 4).as_subclass(Marked))
        return model

    def forward(model) -> Tensor:
        x = batch()
        return model(x.as_subclass(Marked) if where == "input" else x).square().mean()

    watch_and_compare(build, forward)


def save_on_cpu() -> object:
    return torch.autograd.graph.save_on_cpu()


def anomaly_mode() -> object:
    return torch.autograd.detect_anomaly(check_nan=False)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("context", [save_on_cpu, anomaly_mode])
def test_other_tools_of_autograd_around_the_forward(watch_and_compare, context):
    def forward(model) -> Tensor:
        with context():
            return squares(model)

    watch_and_compare(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), forward)


def test_transposed_and_channels_last_convolutions(watch_and_compare):
    def build() -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        return layers.to(memory_format=torch.channels_last)

    def forward(model) -> Tensor:
        images = batch(2, 3, 32, 32).to(memory_format=torch.channels_last)
        return model(images).square().mean()

    seen = watch_and_compare(build, forward)
    assert seen.gradient(seen.node("ReluBackward0")).numel == 2 * 6 * 30 * 30


# Types


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_precisions(watch_and_compare, dtype):
    seen = watch_and_compare(
        lambda: nn.Sequential(nn.Linear(4, 70), nn.Tanh(), nn.Linear(70, 70)).to(dtype),
        lambda model: model(batch().to(dtype)).square().mean(),
    )
    assert seen.recording.parameters[0].shape.dtype == str(dtype).removeprefix("torch.")


def test_half_precision_gradient_whose_squares_overflow(watch_and_compare):
    seen = watch_and_compare(
        lambda: nn.ParameterList([torch.ones(2000, dtype=torch.float16)]),
        lambda model: (model[0] * 3e4).float().sum(),
    )
    gradient = seen.parameter("0").gradient
    assert gradient.nonfinite == 0
    assert gradient.norm == pytest.approx(3e4 * math.sqrt(2000), rel=1e-3)


def test_autocast(watch_and_compare):
    def forward(model) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch()).float().square().mean()

    seen = watch_and_compare(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), forward
    )
    types = {output.dtype for node in seen.recording.nodes for output in node.outputs}
    assert types == {"bfloat16", "float32"}


def test_complex_parameters(watch_and_compare):
    seen = watch_and_compare(
        lambda: nn.Linear(4, 4, dtype=torch.complex64),
        lambda model: model(torch.complex(batch(), batch())).abs().square().mean(),
    )
    assert seen.recording.parameters[0].shape.dtype == "complex64"


@pytest.mark.parametrize("rows", [3, 3000])
def test_sparse_embedding_gradient_with_repeated_rows(watch_and_compare, rows):
    def forward(model) -> Tensor:
        return model(torch.randint(0, rows // 2 + 1, (2, rows))).square().mean()

    seen = watch_and_compare(lambda: nn.Embedding(rows, 4, sparse=True), forward)
    assert seen.parameter("weight").gradient.numel == rows * 4
    assert seen.parameter("weight").gradient.zero_share >= 1 / 3 - 1e-9


def test_sparse_parameter(watch_and_compare):
    def build() -> nn.Module:
        return nn.ParameterList([torch.eye(4).to_sparse()])

    seen = watch_and_compare(build, lambda model: torch.sparse.mm(model[0], batch(4, 2)).sum())
    assert seen.parameter("0").weight_norm == pytest.approx(2)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(watch_and_compare, layout):
    def forward(model) -> Tensor:
        rows = torch.nested.nested_tensor([batch(2, 4), batch(3, 4)], layout=layout)
        return torch.nested.to_padded_tensor(model(rows), 0.0).square().mean()

    watch_and_compare(lambda: nn.Linear(4, 4), forward)


def test_nan_and_infinite_gradients_are_counted(watch):
    model = nn.ParameterList([torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 1.0])])
    seen = watch(model, lambda: model[0].sqrt().sum() + (model[1] / model[1]).sum())
    assert (seen.parameter("0").gradient.nonfinite, seen.parameter("0").gradient.norm) == (
        1,
        math.inf,
    )
    assert seen.parameter("1").gradient.nonfinite == 1
    assert math.isnan(seen.parameter("1").gradient.norm)
    assert seen.parameter("1").reach == "gradient"


# Custom functions, checkpoints, higher order


class WritesInPlace(torch.autograd.Function):
    """Its backward writes into the gradient that it is given."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 5

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient.mul_(5)


def test_custom_function_that_writes_into_its_gradient(watch):
    model = nn.ParameterList([torch.ones(4)])
    seen = watch(model, lambda: WritesInPlace.apply(model[0].sin()).square().sum())
    y = 5 * torch.ones(4).double().sin()
    custom, inner = seen.node("WritesInPlaceBackward"), seen.node("SinBackward0")
    assert seen.gradient(custom).norm == pytest.approx((2 * y).norm().item(), rel=1e-6)
    assert seen.gradient(inner).norm == pytest.approx((10 * y).norm().item(), rel=1e-6)


def test_hook_that_writes_into_a_gradient_leaves_no_wrong_number(watch):
    model = nn.ParameterList([torch.ones(4)])

    def forward() -> Tensor:
        hidden = model[0].sin()
        hidden.register_hook(lambda gradient: gradient.mul_(100))
        # Addition hands the same tensor on, which is thus overwritten for its output too.
        return (hidden + torch.zeros(4)).exp().sum()

    seen = watch(model, forward)
    expected = torch.ones(4).double().sin().exp().norm().item()
    gradient = seen.gradient(seen.node("AddBackward0"))
    assert gradient is None or gradient.norm == pytest.approx(expected, rel=1e-6)
    overwritten = [note for note in seen.recording.skipped if "overwritten" in note.reason]
    assert bool(overwritten) == (gradient is None)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_counted_once(watch_and_compare, reentrant):
    def then(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=reentrant)

    seen = watch_and_compare(
        lambda: Through(
            then, block=nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
        ),
        squares,
    )
    assert [call.call for call in seen.calls("block")] == [0]
    assert [call.call for call in seen.calls("block.0")] == [0]
    assert seen.parameter("block.0.weight").reach == "gradient"
    notes = [note.what for note in seen.recording.skipped]
    assert notes == (["the inside of 1 x CheckpointFunctionBackward"] if reentrant else [])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_block_whose_weight_is_used_outside_too(watch_and_compare, reentrant):
    def then(self, x: Tensor) -> Tensor:
        x = self.block(x)
        return checkpoint(self.block, x, use_reentrant=reentrant)

    watch_and_compare(lambda: Through(then, block=nn.Linear(4, 4)), squares)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_accumulate_under_a_checkpoint(watch, double_norm, reentrant):
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
    model[2].weight.grad = torch.ones(4, 4)

    def forward() -> Tensor:
        return checkpoint(model[1], model[0](batch()), use_reentrant=reentrant).sum()

    for _ in range(3):
        seen = watch(model, forward)
        for name in ("0.weight", "1.weight"):
            gradient = double_norm(model.get_parameter(name).grad)
            assert seen.parameter(name).gradient.norm == pytest.approx(gradient, rel=1e-6)
        assert seen.parameter("2.weight").reach == "none"


def test_sequential_checkpoint(watch_and_compare):
    def forward(model) -> Tensor:
        x = batch().requires_grad_()
        return checkpoint_sequential(model, 2, x, use_reentrant=True).square().mean()

    watch_and_compare(lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))), forward)


def test_gradient_penalty(watch_and_compare):
    def forward(critic) -> Tensor:
        x = batch().requires_grad_()
        score = critic(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return score.mean() + 10 * (slope.norm(dim=1) - 1).square().mean()

    seen = watch_and_compare(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)), forward
    )
    double = seen.site("SoftplusBackwardBackward0")
    assert "torch.autograd.grad(" in double.source


def test_autograd_grad_inside_forward_is_no_part_of_the_measured_backward(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(self.potential(x).sum(), x, retain_graph=True)
        return x - 0.1 * slope

    seen = watch_and_compare(lambda: Through(then, potential=nn.Linear(4, 1)), squares)
    assert seen.parameter("potential.weight").reach == "none"


def test_meta_learning_step_inside_forward(watch_and_compare):
    def forward(model) -> Tensor:
        x = batch()
        weights = dict(model.named_parameters())
        inner = torch.func.functional_call(model, weights, (x,)).square().mean()
        slopes = torch.autograd.grad(inner, tuple(weights.values()), create_graph=True)
        fast = {n: w - 0.1 * s for (n, w), s in zip(weights.items(), slopes, strict=True)}
        return torch.func.functional_call(model, fast, (x,)).square().mean()

    watch_and_compare(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), forward)


TRANSFORMS = {
    "vmap": lambda self, x: torch.func.vmap(lambda row: (row @ self.first.weight).tanh())(x),
    "vmap of a module": lambda self, x: torch.func.vmap(self.first)(x),
    "grad": lambda self, x: x * torch.func.grad(lambda z: z.square().sum())(x),
    "jacrev": lambda self, x: torch.func.jacrev(self.first)(x).sum((2, 3)) * x,
    "jvp": lambda self, x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "vmap over grad": lambda self, x: torch.func.vmap(torch.func.grad(lambda z: z.sin().sum()))(x),
}


@pytest.mark.filterwarnings("ignore:.torch.jit")  # of torch's own use of torch.jit
@pytest.mark.parametrize("then", TRANSFORMS.values(), ids=TRANSFORMS)
def test_function_transforms_inside_a_forward(watch_and_compare, then):
    watch_and_compare(lambda: Through(then), squares)


# Hooks of the user's own


def test_hook_that_changes_a_parameters_gradient(watch_and_compare):
    def build() -> nn.Module:
        model = nn.Linear(4, 4)
        model.weight.register_hook(lambda gradient: gradient * 7)
        return model

    watch_and_compare(build, squares)


def test_hook_that_changes_an_intermediate_gradient(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        x = x.sin()
        x.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        return x

    seen = watch_and_compare(lambda: Through(then), squares)
    clamped = seen.gradient(seen.node("SinBackward0"))
    assert clamped.absolute_maximum == pytest.approx(1e-3)


def test_post_accumulate_hook_that_changes_the_gradient(watch_and_compare):
    def halve(parameter: Tensor) -> None:
        parameter.grad.mul_(0.5)

    def build() -> nn.Module:
        model = nn.Linear(4, 4)
        model.weight.register_post_accumulate_grad_hook(halve)
        return model

    watch_and_compare(build, squares)


def test_optimizer_in_backward_takes_gradients_away(watch, double_norm):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    x = batch()
    expected = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    before = model.weight.detach().clone()
    seen = watch(model, lambda: model(x).square().mean())
    for name, gradient in zip(("weight", "bias"), expected, strict=True):
        stat = seen.parameter(name)
        assert stat.reach == "gradient"
        assert stat.gradient.norm == pytest.approx(double_norm(gradient), rel=1e-6)
    assert model.weight.grad is None
    assert torch.allclose(model.weight, before - 0.1 * expected[0])


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_full_backward_hooks_of_the_users_run_as_without(watch_and_compare):
    fired: list[str] = []

    def note(module, grad_input, grad_output) -> None:
        fired.append(type(module).__name__)

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        for layer in model:
            layer.register_full_backward_hook(note)
        return model

    watch_and_compare(build, squares)
    assert fired == ["Linear", "Tanh", "Linear"] * 2


def test_retained_gradients_are_the_users_own(watch):
    model = nn.Linear(4, 4)
    kept = []

    def forward() -> Tensor:
        hidden = model(batch()).sin()
        hidden.retain_grad()
        kept.append(hidden)
        return hidden.square().sum()

    seen = watch(model, forward)
    assert torch.equal(kept[0].grad, 2 * kept[0].detach())
    norm = kept[0].grad.double().norm().item()
    assert seen.gradient(seen.node("SinBackward0")).norm == pytest.approx(norm, rel=1e-6)


# Unusual modules


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
