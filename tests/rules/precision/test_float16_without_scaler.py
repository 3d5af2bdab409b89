"""GS604: float16 gradients that are lost because nothing scales the loss."""

import pytest

from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.half_precision import LEVELS, found, recording_of, with_share


def test_flushed_gradients_without_a_scale_are_an_error():
    assert found(recording_of()) == [("GS604", "error")]


def test_it_points_to_the_autocast():
    (finding,) = judge(recording_of()).findings
    assert "torch.autocast" in finding.location.source
    assert [position.source for position in finding.related] == [
        "return (predicted.float() - target).square().mean() * self.factor"
    ]


def test_a_weight_is_no_scale():
    assert found(recording_of(factor=15.0)) == [("GS604", "error")]
    assert found(recording_of(factor=1 / 64)) == [("GS604", "error")]


def test_gradients_that_arrive_are_not_found():
    assert found(recording_of(size=1.0)) == []


@pytest.mark.parametrize(("flushed", "severity"), some_on_push(LEVELS, 3))
def test_the_share_decides(flushed, severity):
    changed = with_share(recording_of(), flushed=flushed, elements=1000)
    assert found(changed) == ([("GS604", severity)] if severity else [])


def test_without_elements_there_is_no_share():
    assert found(with_share(recording_of(), flushed=0, elements=0)) == []


def test_zero_gradients_are_its_consequence():
    (finding,) = judge(recording_of()).findings
    assert finding.rule == "GS604"
    assert "GS204" in {one.rule for one in finding.consequences}
