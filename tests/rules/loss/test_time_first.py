"""GS707 of scripts whose layers run over the examples of a batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

ROWS, TIME, WIDTH = 12, 7, 8


class Recurrent(nn.Module):
    """A recurrent layer, and a head on what is chosen from its outputs."""

    def __init__(self, kind, choose, **options):
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, **options)
        self.head = nn.Linear(WIDTH * (2 if options.get("bidirectional") else 1), 3)
        self.choose = choose

    def forward(self, x):
        return self.choose(self.head(torch.tanh(self.layer(x)[0])))


class Attentive(nn.Module):
    def __init__(self, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, **options)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.layers(x)[:, 0])


def last(out):
    return out[:, -1]


def found(make, folder, shape=(ROWS, TIME)):
    def loop():
        torch.manual_seed(1)
        model = make()
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(6):
            adam.zero_grad()
            output = model(torch.randn(*shape, WIDTH))
            functional.cross_entropy(output, torch.arange(ROWS) % 3).backward()
            adam.step()

    return [one for one in findings_of(loop, folder) if one.rule == "GS707"]


SICK = {
    "lstm": lambda: Recurrent(nn.LSTM, last),
    "gru of several layers": lambda: Recurrent(nn.GRU, last, num_layers=2),
    "rnn in both directions": lambda: Recurrent(nn.RNN, last, bidirectional=True),
    "a middle step": lambda: Recurrent(nn.GRU, lambda out: out[:, 3]),
}


@pytest.mark.parametrize("make", some_on_push(SICK.values(), 3), ids=SICK)
def test_a_recurrent_layer_over_the_examples_is_an_error_where_it_is_made(make, tmp_path):
    (one,) = found(make, tmp_path)
    assert one.severity == "error"
    assert one.location.source.startswith("self.layer = kind(")
    assert "depends on the other 11" in one.message


def test_attention_over_the_examples_is_an_error(tmp_path):
    (one, *_) = found(Attentive, tmp_path)
    assert one.severity == "error"
    assert one.location.source.startswith(("layer = ", "self.layers = "))


HEALTHY = {
    "the batch comes first": (lambda: Recurrent(nn.LSTM, last, batch_first=True), (ROWS, TIME)),
    "a gru, the batch first": (lambda: Recurrent(nn.GRU, last, batch_first=True), (ROWS, TIME)),
    "the time comes first": (lambda: Recurrent(nn.LSTM, lambda out: out[-1]), (TIME, ROWS)),
    "both ways, the batch first": (
        lambda: Recurrent(nn.GRU, last, batch_first=True, bidirectional=True),
        (ROWS, TIME),
    ),
    "a series of rows": (lambda: Recurrent(nn.LSTM, lambda out: out[:, 0]), (ROWS, 1)),
    "as many steps as examples": (lambda: Recurrent(nn.LSTM, lambda out: out[-1]), (ROWS, ROWS)),
    "several series in step": (lambda: Recurrent(nn.GRU, lambda out: out.mean(1)), (ROWS, TIME)),
    "attention, the batch first": (lambda: Attentive(batch_first=True), (ROWS, TIME)),
}


@pytest.mark.parametrize(("make", "shape"), some_on_push(HEALTHY.values(), 3), ids=HEALTHY)
def test_layers_that_run_over_time_are_healthy(make, shape, tmp_path):
    assert found(make, tmp_path, shape) == []
