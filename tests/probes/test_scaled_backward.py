"""Number of gradient elements lost in half precision, against manual rounding."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradscope
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.failures import FlushRecord


class Scaled(nn.Module):
    """A loss whose gradient with respect to each weight is a chosen number, in a chosen type."""

    def __init__(self, gradients, dtype, factor=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(len(gradients)))
        self.register_buffer("gradients", torch.tensor(gradients))
        self.dtype, self.factor = dtype, factor

    def forward(self, x):
        narrow = self.weight.to(self.dtype).float()
        return (narrow * self.gradients).sum() * self.factor


def recording_of(model, **chosen):
    return gradscope.inspect(model, torch.ones(1), probe_steps=1, **chosen).recording


def flushes(model):
    return recording_of(model).evidence_of(FlushRecord)


def test_elements_are_counted_that_round_to_zero():
    gradients = [2.0**-k for k in range(10, 34)] + [0.0]
    (record,) = flushes(Scaled(gradients, torch.float16))
    expected = sum(g != 0 and torch.tensor(g).half().item() == 0 for g in gradients)
    assert expected == 9
    assert record.dtype == "float16"
    assert record.factor == 2.0**16
    assert (record.flushed, record.elements) == (expected, 24)


def test_the_largest_factor_is_taken_that_overflows_nowhere():
    for largest, factor in ((1.0, 2.0**12), (100.0, 2.0**8), (2000.0, 2.0**4)):
        (record,) = flushes(Scaled([largest, 2.0**-26], torch.float16))
        assert record.factor == factor
        assert record.flushed == 1


def test_where_every_factor_overflows_it_says_so():
    recording = recording_of(Scaled([60000.0, 2.0**-26], torch.float16))
    assert recording.evidence_of(FlushRecord) == ()
    (reason,) = [
        one.skip_reason
        for one in recording.evidence_of(ProbeRecord)
        if one.name == "half precision"
    ]
    assert "overflow" in reason


def test_bfloat16_flushes_nothing_that_float32_holds():
    (record,) = flushes(Scaled([2.0**-k for k in range(10, 100, 10)], torch.bfloat16))
    assert record.dtype == "bfloat16"
    assert record.flushed == 0


def test_float32_is_not_examined():
    assert flushes(Scaled([2.0**-30], torch.float32)) == ()


def test_the_line_of_autocast_is_noted():
    class Autocast(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.float16):  # the line
                hidden = self.layer(x.expand(3, 4))
            return hidden.float().square().mean()

    entered = torch.autocast.__enter__
    recording = recording_of(Autocast())
    (record,) = recording.evidence_of(FlushRecord)
    assert recording.sites[record.site].source.endswith("# the line")
    assert torch.autocast.__enter__ is entered


def test_half_precision_parameters_are_examined():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).half()
    report = gradscope.inspect(
        model,
        torch.randn(3, 4).half(),
        lambda output: output.float().square().mean() * 1e-6,
        probe_steps=1,
    )
    (record,) = report.recording.evidence_of(FlushRecord)
    assert {one.parameter for one in record.gradients} == {0, 1, 2, 3}
    assert record.flushed > 0


def test_a_reentrant_checkpoint_is_a_reason_to_skip_and_no_crash():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4).half(), nn.Linear(4, 4).half()

        def forward(self, x):
            hidden = self.first(x.expand(3, 4).half())
            return checkpoint(self.second, hidden, use_reentrant=True).float().sum()

    recording = recording_of(Checkpointed())
    (reason,) = [
        one.skip_reason
        for one in recording.evidence_of(ProbeRecord)
        if one.name == "half precision"
    ]
    assert reason is not None


@pytest.mark.parametrize("probe_steps", [0])
def test_without_a_second_run_it_is_not_examined(probe_steps):
    model = Scaled([2.0**-30], torch.float16)
    recording = gradscope.inspect(model, torch.ones(1), probe_steps=probe_steps).recording
    assert recording.evidence_of(FlushRecord) == ()
