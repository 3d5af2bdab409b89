"""GS601: gradients that half precision loses although the loss is scaled."""

import pytest
import torch

import gradscope
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.half_precision import LEVELS, Pressure, X, found, recording_of, with_share


def test_a_scale_that_is_too_small_is_blamed():
    assert found(recording_of(factor=16.0)) == [("GS601", "error")]


def test_the_scale_and_what_fits_are_told():
    (finding,) = judge(recording_of(factor=64.0)).findings
    assert "even with the loss scaled by 64" in finding.message
    assert dict(finding.evidence)["loss_scale"] == 64


def test_a_scale_that_is_large_enough_is_not_found():
    assert found(recording_of(factor=65536.0 * 256)) == []


@pytest.mark.parametrize(("flushed", "severity"), some_on_push(LEVELS, 3))
def test_the_share_decides(flushed, severity):
    changed = with_share(recording_of(factor=64.0), flushed=flushed, elements=1000)
    assert found(changed) == ([("GS601", severity)] if severity else [])


@pytest.mark.parametrize(
    "dtype", some_on_push(["bfloat16", "float8_e4m3fn", "float8_e5m2"], {0, 1})
)
def test_types_other_than_float16_may_lose_gradients_without_a_scale(dtype):
    changed = with_share(recording_of(), flushed=300, elements=1000, dtype=dtype)
    assert found(changed) == [("GS601", "warning")]


def test_bfloat16_loses_nothing():
    assert found(recording_of(dtype=torch.bfloat16)) == []


def test_without_the_examination_it_is_skipped():
    recording = gradscope.inspect(Pressure(), X, probe_steps=0).recording
    assert {"GS601", "GS604"} <= {one.rule for one in judge(recording).skipped}
