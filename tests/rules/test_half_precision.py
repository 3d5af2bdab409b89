"""GS601 and GS604: gradients that half precision loses, with and without a loss scale."""

import dataclasses

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.evidence.flush import FlushedGradient, FlushRecord
from gradscope.rules.engine import judge

CODES = ("GS601", "GS604")
X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))


class Pressure(nn.Module):
    """A network in half precision, with a small loss times a factor."""

    def __init__(self, *, factor=1.0, size=1e-4, dtype=torch.float16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.factor, self.size, self.dtype = factor, size, dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            predicted = self.layers(x) * self.size
        target = self.size * x.sum(1, keepdim=True)
        return (predicted.float() - target).square().mean() * self.factor


def recording_of(**chosen):
    return gradscope.inspect(Pressure(**chosen), X, probe_steps=1).recording


def found(recording):
    return [(one.rule, one.severity) for one in judge(recording).findings if one.rule in CODES]


def test_flushed_gradients_without_a_scale_are_an_error():
    assert found(recording_of()) == [("GS604", "error")]


def test_with_a_scale_that_is_too_small_the_scale_is_blamed():
    assert found(recording_of(factor=16.0)) == [("GS601", "error")]


def test_a_weight_is_no_scale():
    assert found(recording_of(factor=15.0)) == [("GS604", "error")]


@pytest.mark.parametrize(
    "healthy",
    [
        {"size": 1.0},
        {"dtype": torch.bfloat16},
        {"factor": 65536.0 * 256},
    ],
)
def test_gradients_that_arrive_are_not_found(healthy):
    assert found(recording_of(**healthy)) == []


def with_share(recording, *, flushed, elements, **changes):
    gradients = (FlushedGradient(parameter=0, elements=elements, flushed=flushed),)
    evidence = tuple(
        dataclasses.replace(one, gradients=gradients, **changes)
        if isinstance(one, FlushRecord)
        else one
        for one in recording.evidence
    )
    return dataclasses.replace(recording, evidence=evidence)


@pytest.mark.parametrize(
    ("flushed", "severity"),
    [
        (0, None),
        (49, None),
        (50, "note"),
        (249, "note"),
        (250, "warning"),
        (749, "warning"),
        (750, "error"),
        (1000, "error"),
    ],
)
def test_the_share_decides(flushed, severity):
    plain, scaled = recording_of(), recording_of(factor=64.0)
    for code, recording in (("GS604", plain), ("GS601", scaled)):
        expected = [(code, severity)] if severity else []
        assert found(with_share(recording, flushed=flushed, elements=1000)) == expected


def test_without_elements_there_is_no_share():
    assert found(with_share(recording_of(), flushed=0, elements=0)) == []


def test_types_other_than_float16_need_no_scaler_but_may_lose_gradients():
    changed = with_share(recording_of(), flushed=300, elements=1000, dtype="float8_e5m2")
    assert found(changed) == [("GS601", "warning")]


def test_zero_gradients_are_its_consequence():
    (finding,) = judge(recording_of()).findings
    assert finding.rule == "GS604"
    assert "GS204" in {one.rule for one in finding.consequences}


def test_without_the_examination_the_rules_are_skipped():
    recording = gradscope.inspect(Pressure(), X, probe_steps=0).recording
    assert set(CODES) <= {one.rule for one in judge(recording).skipped}
