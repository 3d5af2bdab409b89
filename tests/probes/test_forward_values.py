"""Values of the forward's tensors, against numbers computed by hand."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.probes.forward.forward_values import values_of
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.forward import ForwardStat, SaturationRecord, UnitRecord
from tests.nightly import some_on_push


class Functional(nn.Module):
    """Two layers, and a forward that a test writes."""

    def __init__(self, forward):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.run = forward

    def forward(self, x):
        return self.run(self, x)


def record(model, batch, loss=None, **chosen):
    return gradscope.inspect(model, batch, loss, **chosen).recording


def run(forward, **chosen):
    torch.manual_seed(0)
    return record(Functional(forward), torch.randn(20, 6), **chosen)


def stats_by_operation(recording):
    return {
        recording.nodes[stat.tensor.node].operation: stat
        for stat in recording.evidence_of(ForwardStat)
    }


def reason(recording, name="forward"):
    (found,) = [one for one in recording.evidence_of(ProbeRecord) if one.name == name]
    return found.skip_reason


def test_values_are_those_of_the_forward_in_double_precision():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(20, 6)
    weight, bias = (parameter.detach().double() for parameter in model[0].parameters())
    hidden = torch.relu(functional.linear(x.double(), weight, bias))
    stat = stats_by_operation(record(model, x))["ReluBackward0"]
    assert stat.numel == 160
    assert stat.norm == pytest.approx(float(hidden.norm()), rel=1e-6)
    assert stat.rms == pytest.approx(float(hidden.square().mean().sqrt()), rel=1e-6)
    assert (stat.minimum, stat.zeros) == (0, int((hidden == 0).sum()))
    assert stat.maximum == pytest.approx(float(hidden.max()), rel=1e-6)
    assert stat.nonfinite == 0


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([1e30, -2e30], torch.float32),  # whose squares overflow
        ([1e-30, -2e-30], torch.float32),  # whose squares vanish
        ([3e4, -6e4, 0.0], torch.float16),
        ([1e200, 2e200], torch.float64),
    ],
)
def test_norms_survive_where_squares_do_not(numbers, dtype):
    tensor = torch.tensor(numbers, dtype=dtype)
    expected = math.hypot(*tensor.tolist())
    assert values_of(tensor).norm == pytest.approx(expected, rel=1e-6)


def test_what_is_not_finite_is_counted_and_left_out_of_the_extremes():
    values = values_of(torch.tensor([1.0, math.nan, -math.inf, 0.0, -3.0]))
    assert math.isnan(values.norm)
    assert values[1:] == (-3, 1, 1, 2)
    assert values_of(torch.tensor([math.inf, 2.0])).norm == math.inf


def test_an_empty_tensor_and_one_of_nan_alone_have_no_extremes():
    assert values_of(torch.ones(0)).norm == 0
    assert math.isnan(values_of(torch.ones(0)).minimum)
    assert math.isnan(values_of(torch.full((3,), math.nan)).maximum)


def test_what_happens_inside_of_torch_is_observed():
    layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
    recording = record(layer, torch.randn(2, 5, 6), lambda output, batch: output.sum())
    made = {node.index for node in recording.nodes if node.graph == 0 and node.kind == "operation"}
    unseen = made - {stat.tensor.node for stat in recording.evidence_of(ForwardStat)}
    names = {recording.nodes[node].operation.partition("Back")[0] for node in unseen}
    assert names <= {"Expand", "Select", "Squeeze", "Split", "Unbind", "Unsqueeze"}


def test_a_forward_that_changes_from_run_to_run_keeps_the_nodes_apart():
    runs = []

    def forward(model, x):
        runs.append(None)
        hidden = model.first(x)
        for _ in range(len(runs)):
            hidden = hidden.sin()
        return model.second(hidden)

    recording = run(forward)
    assert reason(recording) is None
    for stat in recording.evidence_of(ForwardStat):
        (shape,) = recording.nodes[stat.tensor.node].outputs
        assert math.prod(shape.dims) == stat.numel


def test_a_forward_that_raises_the_second_time_is_not_examined():
    runs = []

    def forward(model, x):
        runs.append(None)
        if len(runs) == 2:
            raise ValueError("only once")
        return model.second(model.first(x))

    assert "raised when it was repeated" in reason(run(forward))


def test_without_probing_steps_the_forward_is_run_once():
    runs = []

    def forward(model, x):
        runs.append(None)
        return model.second(model.first(x))

    assert reason(run(forward, probe_steps=0)) is not None
    assert len(runs) == 1


def test_units_are_counted_over_all_calls_of_a_layer():
    def forward(model, x):
        x = torch.cat([x, x + 1])
        halves = [torch.relu(model.first(half)) for half in (x[:20], x[20:])]
        return model.second(torch.cat(halves))

    recording = run(forward)
    (found,) = recording.evidence_of(UnitRecord)
    torch.manual_seed(0)
    model, x = Functional(None), torch.randn(20, 6)
    active = (model.first(torch.cat([x, x + 1])) > 0).any(dim=0)
    assert (found.units, found.inactive, found.rows) == (8, int((~active).sum()), 40)
    assert [recording.parameters[index].name for index in found.parameters] == [
        "first.weight",
        "first.bias",
    ]


ACTIVATIONS = {
    "in place": lambda h: h.relu_(),
    "clamp": lambda h: h.clamp(min=0),
    "clamp_min": lambda h: torch.clamp_min(h, 0),
    "threshold": lambda h: functional.threshold(h, 0, 0),
    "relu6": functional.relu6,
    "in place on a view": lambda h: h.view(4, 5, 8).relu_().view(20, 8),
    "after a norm": lambda h: functional.layer_norm(h, (8,)).relu(),
}


@pytest.mark.parametrize("activation", some_on_push(ACTIVATIONS.values(), 3), ids=ACTIVATIONS)
def test_activations_that_are_flat_on_one_side_are_counted(activation):
    recording = run(lambda model, x: model.second(activation(model.first(x))))
    assert [found.units for found in recording.evidence_of(UnitRecord)] == [8]


NO_UNITS = {
    "leaky": lambda model, x: model.second(functional.leaky_relu(model.first(x))),
    "clamp of probabilities": lambda model, x: model.second(model.first(x).clamp(1e-6, 1)),
    "clamp from above": lambda model, x: model.second(model.first(x).clamp(max=0)),
    "a hinge": lambda model, x: torch.relu(1 - model.second(model.first(x))),
    "distances": lambda model, x: torch.relu(model.first(x) @ model.first(x).T),
    "a loss per row": lambda model, x: torch.relu(model.second(model.first(x)).sum(1)),
}


@pytest.mark.parametrize("forward", some_on_push(NO_UNITS.values(), 3), ids=NO_UNITS)
def test_what_is_no_activation_of_a_layer_has_no_units(forward):
    assert run(forward).evidence_of(UnitRecord) == ()


def test_channels_are_the_units_of_convolutions():
    model = nn.Sequential(
        nn.Conv1d(3, 5, 3), nn.ReLU(), nn.Conv1d(5, 7, 1), nn.BatchNorm1d(7), nn.ReLU()
    )
    found = record(model, torch.randn(4, 3, 10)).evidence_of(UnitRecord)
    assert [(one.units, one.rows, one.samples) for one in found] == [(5, 32, 4), (7, 32, 4)]


def test_saturated_elements_are_those_with_a_flat_derivative():
    def forward(model, x):
        return model.second(torch.sigmoid(9 * model.first(x))) + torch.tanh(model.second.bias)

    found = {one.operation: one for one in run(forward).evidence_of(SaturationRecord)}
    torch.manual_seed(0)
    model, x = Functional(None), torch.randn(20, 6)
    argument = (9 * model.first(x)).detach().requires_grad_()
    (slope,) = torch.autograd.grad(torch.sigmoid(argument).sum(), argument)
    assert found["sigmoid"].saturated == int((slope < 0.05 / 4).sum())
    assert (found["tanh"].elements, found["tanh"].saturated) == (3, 0)


def test_masked_rows_and_rows_of_one_are_no_saturated_softmax():
    causal = torch.full((20, 20), -math.inf).triu(1)

    def forward(model, x):
        hidden = model.first(x)
        single = torch.softmax(hidden[:, :1], dim=-1)
        return model.second(torch.softmax(hidden @ hidden.T + causal, dim=-1) @ hidden * single)

    found = run(forward).evidence_of(SaturationRecord)
    assert [(one.operation, one.elements) for one in found] == [("softmax", 19)]
