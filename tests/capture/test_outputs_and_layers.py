"""Containers of tensors, layers with state, and other tools around a forward."""

import collections
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.capture.small_models import Through, batch, squares


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
