import dataclasses

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.evidence.parameters import SymmetryRecord
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.inspecting import marked_lines, only
from tests.rules.optimizing import Net, batch


def records(model, data=None, loss=None):
    loss = nn.functional.cross_entropy if loss is None else loss
    report = gradscope.inspect(model, batch() if data is None else data, loss)
    names = [parameter.name for parameter in report.recording.parameters]
    found = report.recording.evidence_of(SymmetryRecord)
    return report, {names[r.parameter]: (r.alike, r.rows) for r in found}


def constant(layer: nn.Module) -> nn.Module:
    nn.init.constant_(layer.weight, 0.1)
    nn.init.zeros_(layer.bias)
    return layer


def stack() -> nn.Sequential:
    return nn.Sequential(
        constant(nn.Linear(6, 8)), nn.Tanh(), constant(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3)
    )


def test_constant_layers_are_found():
    report, found = records(stack())
    assert found["0.weight"] == (8, 8)
    finding = only(report.findings, "GS111")
    assert finding.severity == "error"
    assert "all 8 units of 0.weight" in finding.message


def all_constant(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    return model


@pytest.mark.parametrize("classes", some_on_push([2, 3, 10], {0, 1}))
def test_constant_network_is_found_though_the_gradients_of_the_classes_cancel(classes):
    model = all_constant(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, classes)))
    data = torch.randn(12, 6), torch.arange(12) % classes
    report, found = records(model, data)
    assert found == {"0.weight": (16, 16)}
    finding = only(report.findings, "GS111")
    assert (finding.severity, finding.parameters) == ("error", ("0.weight",))


def test_constant_convolutions_are_found_through_a_normalisation():
    layers = [nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.ReLU()]
    model = all_constant(nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3)))
    _, found = records(model, (torch.randn(12, 1, 6), torch.arange(12) % 3))
    assert found.keys() == {"0.weight", "3.weight"}


class Gate(nn.Module):
    """A layer of constants behind a gate that starts at zero."""

    def __init__(self):
        super().__init__()
        self.gate, self.constant = nn.Parameter(torch.zeros(1)), constant(nn.Linear(6, 16))
        self.skip, self.head = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.skip(x) + self.gate * self.constant(x))


def random_bias() -> nn.Module:
    model = all_constant(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
    nn.init.normal_(model[0].bias)
    return model


@pytest.mark.parametrize(
    "make",
    some_on_push(
        [
            Gate,
            random_bias,
            lambda: all_constant(nn.Linear(6, 3)),
            lambda: nn.Sequential(constant(nn.Linear(6, 16)), nn.Tanh(), nn.Linear(16, 3)),
            lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), constant(nn.Linear(16, 3))),
            lambda: all_constant(nn.Sequential(nn.Linear(6, 16), nn.Dropout(), nn.Linear(16, 3))),
        ],
        {0, 3},
    ),
    ids=["gate", "random bias", "one layer", "first layer", "last layer", "dropout"],
)
def test_constants_that_something_tells_apart_are_left_alone(make):
    torch.manual_seed(0)
    assert records(make())[1] == {}


def test_line_of_the_constant_is_named(inspect_file, tmp_path):
    report = inspect_file(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)
        nn.init.constant_(self.first.weight, 0.1)  # <-
        nn.init.zeros_(self.first.bias)
        nn.init.constant_(self.last.weight, 0.2)
        nn.init.constant_(self.last.bias, 0.3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))

model = Net()
batch = torch.randn(12, 8), torch.arange(12) % 3
criterion = nn.CrossEntropyLoss()
"""
    )
    found = only(report.findings, "GS111")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")


def test_equal_units_stay_equal():
    torch.manual_seed(0)
    model, (x, y) = stack(), batch()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert torch.allclose(model[0].weight, model[0].weight[:1].expand(8, -1), rtol=1e-4)


def test_convolutions_have_output_channels_as_units():
    model = nn.Sequential(
        constant(nn.Conv2d(1, 4, 3)),
        nn.ReLU(),
        constant(nn.Conv2d(4, 5, 3)),
        nn.Flatten(),
        nn.Linear(20, 3),
    )
    _, found = records(model, (torch.rand(6, 1, 6, 6), torch.arange(6) % 3))
    assert found["0.weight"] == (4, 4)


def test_transposed_convolutions_have_them_in_their_second_dimension():
    model = nn.Sequential(
        constant(nn.ConvTranspose2d(2, 4, 3)),
        nn.ReLU(),
        constant(nn.Conv2d(4, 1, 3)),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    _, found = records(model, (torch.rand(6, 2, 4, 4), torch.arange(6) % 3))
    assert found["0.weight"] == (4, 4)


def zero_head():
    model = Net()
    nn.init.zeros_(model.head.weight)
    return model


def biases_differ():
    model = Net()
    nn.init.constant_(model.body.weight, 0.1)
    return model


@pytest.mark.parametrize("build", some_on_push([Net, zero_head, biases_differ], {0, 1}))
def test_healthy_models_have_none(build):
    report, found = records(build())
    assert found == {}
    assert "GS111" not in {finding.rule for finding in report.findings}


def test_embedding_and_gradients_of_zero_are_left_out():
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)
            nn.init.constant_(self.table.weight, 0.1)

        def forward(self, x):
            return self.out(self.table(x))

    assert records(Table(), (torch.zeros(6, dtype=torch.long), torch.arange(6) % 3))[1] == {}
    dead = nn.Sequential(constant(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3))
    nn.init.constant_(dead[0].weight, 0.0)
    nn.init.constant_(dead[0].bias, -1.0)
    assert records(dead)[1] == {}


@pytest.mark.parametrize(("alike", "fires"), [(3, False), (4, True), (5, True)])
def test_limit_is_half_of_the_units(alike, fires):
    report, _ = records(stack())
    recording = report.recording
    evidence = tuple(
        dataclasses.replace(record, alike=alike) if isinstance(record, SymmetryRecord) else record
        for record in recording.evidence
    )
    verdict = judge(dataclasses.replace(recording, evidence=evidence))
    assert ("GS111" in {finding.rule for finding in verdict.findings}) is fires


def test_loss_that_was_made_up_is_not_judged():
    model = constant(nn.Linear(6, 3))
    report = gradscope.inspect(model, torch.randn(4, 6))
    assert "GS111" not in {finding.rule for finding in report.findings}
