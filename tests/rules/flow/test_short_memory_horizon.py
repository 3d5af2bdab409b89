"""GS112: what forgets, and what need not remember."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from gradscope.recording.evidence.forward import HorizonRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.flow.short_memory_horizon import ShortMemoryHorizon
from gradscope.rules.helpers.recurrence import fall
from tests.nightly import some_on_push
from tests.rules.flow.test_exploding_gradient import CLASSES, recording_of
from tests.rules.watching import findings_of


def found_in(recording):
    return list(ShortMemoryHorizon().check(RuleContext(recording)))


class Reader(nn.Module):
    """Recurrent layers and a head on what `read` takes of their outputs."""

    def __init__(self, read, layers=1, bias=None):
        super().__init__()
        self.memories = nn.ModuleList(
            nn.LSTM(24 if n else 4, 24, batch_first=True) for n in range(layers)
        )
        self.head, self.read = nn.Linear(24, 4), read
        if bias is not None:
            for memory in self.memories:
                nn.init.constant_(memory.bias_hh_l0[24:48].detach(), bias)

    def forward(self, x):
        for memory in self.memories:
            x, _ = memory(x)
        return self.head(self.read(x))


def last(outputs):
    return outputs[:, -1]


def recorded(model, steps=50):
    torch.manual_seed(0)
    return recording_of(model, (torch.randn(16, steps, 4), CLASSES))


def fading(by_step, steps, read_from=None):
    recording = recorded(Reader(last), 12)
    (old,) = recording.evidence_of(HorizonRecord)
    new = dataclasses.replace(
        old,
        norms=tuple(10.0 ** (-by_step * (steps - 1 - t)) for t in range(steps)),
        read_from=steps - 1 if read_from is None else read_from,
    )
    evidence = tuple(new if one is old else one for one in recording.evidence)
    return dataclasses.replace(recording, evidence=evidence)


def test_an_lstm_read_at_its_last_step_forgets_the_first():
    (found,) = found_in(recorded(Reader(last)))
    evidence = dict(found.evidence)
    assert found.severity == "note"
    assert found.modules == ("memories.0",)
    assert 5 < evidence["horizon"] < 15
    assert evidence["steps"] == 50


@pytest.mark.parametrize(
    ("model", "steps"),
    some_on_push(
        [
            (Reader(lambda outputs: outputs.mean(1)), 50),
            (Reader(lambda outputs: outputs.max(1).values), 50),
            (Reader(last), 12),
            (Reader(last, bias=6.0), 50),
        ],
        {0, 2},
    ),
    ids=["mean", "maximum", "short", "open forget gate"],
)
def test_it_is_silent_where_nothing_is_forgotten(model, steps):
    assert found_in(recorded(model, steps)) == []


def test_of_layers_in_a_row_the_last_one_is_read_last():
    (found,) = found_in(recorded(Reader(last, layers=3)))
    assert found.modules == ("memories.2",)


@pytest.mark.parametrize(("decades", "fires"), [(3.99, False), (4.0 + 1e-9, True), (4.01, True)])
def test_limit(decades, fires):
    assert bool(found_in(fading(decades / 40, 41))) is fires


def test_only_the_steps_before_the_first_output_used_count():
    assert found_in(fading(0.2, 41, read_from=10)) == []
    assert found_in(fading(0.2, 41, read_from=30)) != []


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_steps_that_are_zero_or_nan_are_left_out_of_the_line(value):
    recording = fading(0.5, 41)
    (old,) = recording.evidence_of(HorizonRecord)
    broken = dataclasses.replace(old, norms=(value,) * 20 + old.norms[20:])
    evidence = tuple(broken if one is old else one for one in recording.evidence)
    (found,) = found_in(dataclasses.replace(recording, evidence=evidence))
    assert dict(found.evidence)["decades_per_step"] == pytest.approx(0.5)


def test_it_is_not_judged_where_the_forward_was_not_rerun():
    recording = recording_of(Reader(last), (torch.randn(16, 12, 4), CLASSES), steps=0)
    skip_reason = ShortMemoryHorizon().skip_reason(RuleContext(recording))
    assert skip_reason == "the forward may run only once"


def test_growing_memory_has_no_horizon():
    assert found_in(fading(-0.5, 41)) == []


@pytest.mark.parametrize(
    ("norms", "decades"),
    [
        ([10.0**-n for n in reversed(range(16))], 12),
        ([10.0**n for n in reversed(range(16))], -15),
        ([1e-6] * 8 + [1.0] * 8, 0),  # one jump is no trend
        ([0.0] * 8 + [1.0] * 8, 0),
        ([1.0] * 15 + [0.0], None),
        ([math.inf] + [1.0] * 15, None),
    ],
)
def test_a_fall_is_one_of_most_of_the_steps(norms, decades):
    assert fall(norms) == (None if decades is None else pytest.approx(decades))


class Cells(nn.Module):
    def __init__(self, kind, bias=0.0):
        super().__init__()
        self.cell = kind(8, 8)
        with torch.no_grad():
            self.cell.bias_hh[8:16] += bias
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        state = torch.zeros(len(x), 8)
        states = (state, torch.zeros_like(state))
        for now in x.unbind(1):
            if isinstance(self.cell, nn.LSTMCell):
                states = self.cell(now, states)
                state = states[0]
            else:
                state = self.cell(now, state)
        return self.out(state)


def memory_of(model, steps, folder):
    torch.manual_seed(2)

    def loop():
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(5):
            x = torch.randn(8, steps, 8)
            loss = model(x).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()

    return [one for one in findings_of(loop, folder) if one.rule == "GS112"]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", some_on_push([nn.LSTMCell, nn.GRUCell, nn.RNNCell], {1}))
def test_cells_in_a_loop_forget_in_runs_too(kind, tmp_path):
    torch.manual_seed(2)
    (found,) = memory_of(Cells(kind), 60, tmp_path)
    assert found.severity == "note"
    assert "self.cell(now, state" in found.location.source
    # A gated cell needs no other architecture, but open gates.
    assert ("`bias_hh`" in found.remedy) == (kind is not nn.RNNCell)
    assert ("use an LSTM" in found.remedy) == (kind is nn.RNNCell)


@pytest.mark.nightly
def test_an_open_forget_gate_and_a_short_loop_remember(tmp_path):
    torch.manual_seed(2)
    assert not memory_of(Cells(nn.LSTMCell, bias=6.0), 60, tmp_path)
    (tmp_path / "run.gradscope").unlink()
    assert not memory_of(Cells(nn.LSTMCell), 10, tmp_path)
