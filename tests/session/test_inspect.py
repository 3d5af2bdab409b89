"""`gradscope.inspect`: right statistics, and unchanged objects."""

import copy
import gc
import pickle
import random
import weakref

import numpy
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import gradscope
from gradscope.errors import GradscopeError, UserCodeError
from tests.nightly import some_on_push


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.4)
        self.last = nn.Linear(8, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        noise = random.random() + numpy.random.rand()
        return self.last(self.dropout(self.norm(self.first(x)).relu())) * noise


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 4), torch.randn(8, 4)


def reaches(report) -> dict[str, str]:
    return {row.name: row.reach for row in report.parameters}


def test_numbers_equal_those_of_plain_backward():
    torch.manual_seed(0)
    model, data = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)), batch()
    report = gradscope.inspect(model, data, F.mse_loss)
    loss = F.mse_loss(model(data[0]), data[1])
    loss.backward()
    assert report.summary.loss == loss.item()
    for row, parameter in zip(report.parameters, model.parameters(), strict=True):
        assert row.grad.norm == pytest.approx(parameter.grad.double().norm().item(), rel=1e-6)
    total = torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm().item()
    assert report.summary.grad_norm == pytest.approx(total, rel=1e-6)


OPTIMIZERS = {
    "none": lambda p: None,
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
}


def train(optimizer_of, *, inspect: bool) -> dict[str, object]:
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    model = Network()
    used = optimizer_of(model.parameters())
    optimizer = used or torch.optim.SGD(model.parameters(), lr=0.1)
    seen: dict[str, object] = {}
    for step in range(5):
        x, target = batch()
        if inspect:
            gradscope.inspect(model, (x, target), F.mse_loss, optimizer=used, probe_steps=2)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        seen[f"loss {step}"] = loss.item()
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            seen[f"{name} {step}"] = tensor.detach().numpy().tobytes()
            if tensor.grad is not None:
                seen[f"{name}.grad {step}"] = tensor.grad.numpy().tobytes()
    seen["calls"] = model.calls
    seen["torch"] = torch.get_rng_state().numpy().tobytes()
    seen["random"] = random.getstate()
    seen["numpy"] = numpy.random.get_state(legacy=False)["state"]["key"].tolist()
    return seen


@pytest.mark.parametrize("optimizer_of", some_on_push(OPTIMIZERS.values(), 3), ids=OPTIMIZERS)
def test_inspecting_between_steps_changes_nothing(optimizer_of):
    plain, inspected = train(optimizer_of, inspect=False), train(optimizer_of, inspect=True)
    assert [name for name in plain if plain[name] != inspected[name]] == []
    assert plain.keys() == inspected.keys()


def test_objects_are_left_as_they_were():
    model, data = Network(), batch()
    model.eval()
    model.first.weight.grad = torch.ones(8, 4)
    optimizer = torch.optim.Adam(model.parameters())
    attributes = [set(vars(module)) for module in model.modules()]
    values = [tensor.clone() for tensor in data]
    gradscope.inspect(model, data, F.mse_loss, optimizer=optimizer)
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert [p.grad is None for p in model.parameters()] == [False] + [True] * 5
    assert torch.equal(model.first.weight.grad, torch.ones(8, 4))
    assert optimizer.state == {}
    assert not model.training
    assert model.calls == 0
    assert all(torch.equal(now, then) for now, then in zip(data, values, strict=True))
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert torch.equal(copied.last.weight, model.last.weight)


def test_layers_in_a_plain_list_are_left_as_they_were():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [nn.Linear(4, 4), nn.BatchNorm1d(4)]
            self.last = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.hidden:
                x = layer(x)
            return self.last(x)

    model = Plain()
    report = gradscope.inspect(model, batch(), F.mse_loss)
    assert reaches(report) == {"last.weight": "gradient", "last.bias": "gradient"}
    assert model.hidden[0].weight.grad is None
    assert model.hidden[1].num_batches_tracked == 0


def test_report_keeps_no_tensor_alive():
    alive: list[weakref.ref[Tensor]] = []

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.linear(x)
            alive.append(weakref.ref(hidden))
            hidden.register_hook(lambda gradient: alive.append(weakref.ref(gradient)))
            return hidden

    def inspected():
        model, data = Watched(), batch()
        alive.extend(weakref.ref(tensor) for tensor in (*data, *model.parameters(), model))
        return gradscope.inspect(model, data, F.mse_loss)

    report = inspected()
    gc.collect()
    assert len(alive) >= 7
    assert [reference() for reference in alive if reference() is not None] == []
    assert report.parameters[0].grad.norm > 0


# What has no gradient is said, in words


def test_reasons_for_missing_gradients():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.cut = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.frozen = nn.Linear(4, 4).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.frozen(self.used(x)) + self.cut(x).detach()

    report = gradscope.inspect(Parts(), batch(), F.mse_loss)
    rows = {row.name: row for row in report.parameters}
    assert reaches(report) | {} == {
        f"{module}.{kind}": reach
        for module, reach in (
            ("used", "gradient"),
            ("unused", "none"),
            ("cut", "none"),
            ("frozen", "frozen"),
        )
        for kind in ("weight", "bias")
    }
    assert "never called" in rows["unused.weight"].reason
    assert "detach()" in rows["cut.weight"].reason
    assert rows["frozen.weight"].grad is None


@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        (lambda output, target: output.detach().sum(), "GS501"),
        (lambda output, target: output.argmax(), "GS501"),
        (lambda output, target: output, "GS504"),
    ],
    ids=["detached", "integer", "vector"],
)
def test_loss_that_cannot_be_differentiated(loss, rule):
    report = gradscope.inspect(nn.Linear(4, 4), batch(), loss)
    assert [finding.rule for finding in report.findings] == [rule]
    assert set(reaches(report).values()) == {"unknown"}


def test_loss_that_is_no_tensor_is_refused():
    with pytest.raises(GradscopeError, match="is float, expected a tensor"):
        gradscope.inspect(nn.Linear(4, 4), batch(), lambda output, target: 3.0)


def test_complex_loss_is_refused():
    model = nn.Linear(4, 4, dtype=torch.complex64)
    x, target = batch()
    with pytest.raises(GradscopeError, match="real number"):
        gradscope.inspect(model, (x.to(torch.complex64), target), lambda o, t: o.sum())


def test_loss_that_is_a_leaf_outside_the_model():
    leaf = torch.tensor(1.0, requires_grad=True)
    report = gradscope.inspect(nn.Linear(4, 4), batch(), lambda output, target: leaf)
    assert set(reaches(report).values()) == {"none"}


def test_lazy_model_asks_for_a_first_run():
    with pytest.raises(GradscopeError, match="lazy parameter"):
        gradscope.inspect(nn.LazyLinear(4), batch(), F.mse_loss)


def test_model_that_raises_is_left_as_it_was():
    class Raises(Network):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ZeroDivisionError("in the model")

    model = Raises()
    with pytest.raises(UserCodeError) as caught:
        gradscope.inspect(model, batch(), F.mse_loss)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert model.calls == 0
    assert model.norm.num_batches_tracked == 0


def test_hook_that_raises_in_backward():
    model = nn.Linear(4, 4)

    def fail(gradient: Tensor) -> None:
        raise ZeroDivisionError

    model.weight.register_hook(fail)
    report = gradscope.inspect(model, batch(), F.mse_loss)
    (finding,) = report.findings
    assert (finding.rule, finding.parameters) == ("GS506", ("weight",))
    assert finding.location.source == "raise ZeroDivisionError"
    assert "ZeroDivisionError" in finding.message
    assert model.weight.grad is model.bias.grad is None


def test_optimizer_with_a_closure_is_skipped_with_a_reason():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.LBFGS(model.parameters())
    report = gradscope.inspect(model, batch(), F.mse_loss, optimizer=optimizer)
    assert report.probes == ()
    assert any("closure" in note.reason for note in report.skipped)
    assert all(row.update_norm is None for row in report.parameters)


def test_update_norms_are_those_of_the_optimizers_step():
    torch.manual_seed(0)
    model, data = nn.Linear(4, 4), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    report = gradscope.inspect(model, data, F.mse_loss, optimizer=optimizer)
    for row in report.parameters:
        assert row.update_norm == pytest.approx(0.5 * row.grad.norm, rel=1e-5)


def test_probes_are_steps_of_plain_training():
    torch.manual_seed(0)
    model, data = nn.Linear(4, 4), batch()
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    report = gradscope.inspect(model, data, F.mse_loss, optimizer=optimizer, probe_steps=3)
    plain = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(4):
        plain.zero_grad()
        loss = F.mse_loss(trained(data[0]), data[1])
        loss.backward()
        plain.step()
        losses.append(loss.item())
    assert [report.summary.loss, *(probe.loss for probe in report.probes)] == losses


def test_backward_from_a_vector():
    model, x = nn.Linear(4, 3, bias=False), torch.randn(5, 4)
    ones = gradscope.inspect(model, x, grad_output="ones")
    expected = x.double().sum(0).norm().item() * 3**0.5
    assert ones.parameters[0].grad.norm == pytest.approx(expected, rel=1e-6)
    vector = torch.randn(5, 3)
    given = gradscope.inspect(model, x, grad_output=vector)
    expected = (vector.double().T @ x.double()).norm().item()
    assert given.parameters[0].grad.norm == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("outer", [torch.no_grad, torch.enable_grad], ids=["no_grad", "grad"])
def test_grad_mode_around_the_call_makes_no_difference(outer):
    model, data = nn.Linear(4, 4), batch()
    with outer():
        report = gradscope.inspect(model, data, F.mse_loss)
    assert set(reaches(report).values()) == {"gradient"}


def test_batch_of_inference_tensors():
    with torch.inference_mode():
        data = batch()
    report = gradscope.inspect(nn.Linear(4, 4), data, F.mse_loss)
    assert set(reaches(report).values()) == {"gradient"}
    assert all(tensor.is_inference() for tensor in data)


def test_model_on_the_meta_device_is_refused_or_has_reasons_for_numbers():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to("meta")
    x = torch.ones(2, 4, device="meta")
    try:
        report = gradscope.inspect(model, x, grad_output="ones")
    except GradscopeError as refusal:
        assert "meta" in refusal.what
    else:
        assert {row.reason for row in report.parameters} == {"a meta tensor has no elements"}


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("layout", some_on_push(["sparse", "sparse_csr", "quantised"], {0, 1}))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_buffers_of_unusual_kinds(layout):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            if layout == "quantised":
                table = torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8)
            else:
                table = getattr(torch.eye(4), f"to_{layout}")()
            self.register_buffer("table", table)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.linear(x)
            if layout == "quantised":
                return hidden @ self.table.dequantize()
            return torch.sparse.mm(self.table, hidden.T).T

    model = Mixed()
    report = gradscope.inspect(model, (torch.ones(3, 4), torch.ones(3, 4)), F.mse_loss)
    assert set(reaches(report).values()) == {"gradient"}
    assert torch.allclose(
        model.table.dequantize() if layout == "quantised" else model.table.to_dense(), torch.eye(4)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sparse_parameter_gets_no_probe_steps():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.eye(4).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(self.weight, x.T).sum()

    report = gradscope.inspect(Sparse(), torch.ones(3, 4))
    assert reaches(report) == {"weight": "gradient"}
    assert any("probe steps" in note.what for note in report.skipped)


def test_model_without_parameters():
    with pytest.raises(GradscopeError):
        gradscope.inspect(nn.Tanh(), batch(), F.mse_loss)


def test_model_under_data_parallel():
    report = gradscope.inspect(nn.DataParallel(nn.Linear(4, 4)), batch(), F.mse_loss)
    assert reaches(report) == {"module.weight": "gradient", "module.bias": "gradient"}


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).detach())


def test_rules_are_chosen_and_no_configuration_is_read(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.gradscope]\nignore = ["ALL"]\n')
    monkeypatch.chdir(tmp_path)

    def found(**chosen):
        report = gradscope.inspect(Detached(), batch(), F.mse_loss, probe_steps=0, **chosen)
        return [finding.rule for finding in report.findings], report.rules.ran

    assert found()[0] == ["GS201"]
    assert found(select="GS201,GS203")[1] == ("GS201", "GS203")
    assert found(select=["gradient-cut"], ignore="reach") == (["GS201"], ("GS201",))
    assert found(ignore=["GS201", "GS203"])[0] == []
    with pytest.raises(GradscopeError, match="no rule `GS999`"):
        found(select="GS999")
