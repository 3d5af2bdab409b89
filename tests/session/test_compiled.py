"""Models under `torch.compile`: right gradients, and hidden parts are reported."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import gradscope
from tests.nightly import some_on_push

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

BACKENDS = ("eager", "aot_eager")
HIDDEN = "the model is compiled, and compiled code cannot be observed; --eager shows it"


class Activated(nn.Module):
    """Not compiled itself; calls a function that is."""

    def __init__(self, backend: str):
        super().__init__()
        self.linear = nn.Linear(4, 4)

        def scaled_tanh(x: Tensor) -> Tensor:
            return x.tanh() * 2

        self.activation = torch.compile(scaled_tanh, backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class CompiledPart(nn.Module):
    def __init__(self, backend: str):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = torch.compile(nn.Linear(4, 4), backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def whole(backend: str) -> nn.Module:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    return torch.compile(layers, backend=backend)


def compiled_in_place(backend: str) -> nn.Module:
    model = Activated("eager")
    model.compile(backend=backend)
    return model


MODELS = {"whole": whole, "part": CompiledPart, "in place": compiled_in_place}


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    torch.manual_seed(0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def data() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4), torch.randn(3, 4)


def check_gradients(report, model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    F.mse_loss(model(batch[0]), batch[1]).backward()
    parameters = [p.grad.double().norm().item() for p in model.parameters()]
    found = [row.grad.norm for row in report.parameters]
    assert found == pytest.approx(parameters, rel=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("build", some_on_push(MODELS.values(), 2), ids=MODELS)
def test_gradients_are_right_and_the_hidden_is_said(build, backend):
    model, batch = build(backend), data()
    report = gradscope.inspect(model, batch, F.mse_loss, probe_steps=1)
    assert HIDDEN in [note.reason for note in report.skipped]
    assert not any("_orig_mod" in row.name for row in report.parameters)
    regions = [row for row in report.tensors if row.operation == "CompiledFunctionBackward"]
    told = [note.what for note in report.skipped if "CompiledFunctionBackward" in note.what]
    assert bool(regions) == bool(told)
    check_gradients(report, model, batch)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("build", some_on_push(MODELS.values(), 4), ids=MODELS)
def test_eager_run_shows_lines_and_module_calls(build, backend):
    model, batch = build(backend), data()
    report = gradscope.inspect(model, batch, F.mse_loss, eager=True, probe_steps=1)
    assert HIDDEN not in [note.reason for note in report.skipped]
    inside = [row for row in report.tensors if row.operation != "MseLossBackward0"]
    assert all(row.module is not None for row in inside)
    linear = [row for row in report.modules if row.class_name == "Linear"]
    assert linear
    assert all(len(row.calls) == 1 for row in linear)
    check_gradients(report, model, batch)


def test_eager_run_of_a_compiled_part_shows_the_line_that_calls_it():
    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(model(batch[0]), batch[1])  # of the whole model

    report = gradscope.inspect(CompiledPart("eager"), data(), loss, eager=True)
    calls = {row.path: row.calls[0].site.source for row in report.modules}
    assert calls["second"] == calls["first"] == "return self.second(self.first(x).relu())"
    assert calls[""].endswith("# of the whole model")


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_function_in_a_plain_model_is_watched_eagerly(backend):
    model, batch = Activated(backend), data()
    model(batch[0])  # compiled by now
    report = gradscope.inspect(model, batch, F.mse_loss)
    tanh = next(row for row in report.tensors if row.operation == "TanhBackward0")
    assert tanh.site.source == "return x.tanh() * 2"
    check_gradients(report, model, batch)


@pytest.mark.parametrize("eager", some_on_push([False, True], 2))
def test_compiled_model_compiles_again_afterwards(eager):
    compiled = []

    def backend(graph, example_inputs):
        compiled.append(graph)
        return graph.forward

    model = torch.compile(nn.Linear(4, 4), backend=backend)
    batch = data()
    gradscope.inspect(model, batch, F.mse_loss, eager=eager, probe_steps=0)
    before = len(compiled)
    expected = F.linear(batch[0], model.weight, model.bias)
    assert torch.equal(model(batch[0]), expected)
    assert len(compiled) >= 1
    model(batch[0])
    assert len(compiled) <= before + 1
