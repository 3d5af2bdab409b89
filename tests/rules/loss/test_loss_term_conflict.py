"""GS703: terms that oppose or drown each other."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.recording.evidence.batches import TermPairRecord
from gradscope.rules.engine import judge

GENERATOR = torch.Generator().manual_seed(1)
X, Y = torch.randn(32, 6, generator=GENERATOR), torch.randn(32, 1, generator=GENERATOR)


def recording_of(second, weight=1.0):
    torch.manual_seed(0)

    def loss(output, target):
        one = functional.mse_loss(output, target)
        other = second(output, target)
        return {"loss": one + weight * other, "one": one, "other": other}

    return gradscope.inspect(nn.Linear(6, 1), (X, Y), loss, probe_steps=1).recording


def found(recording):
    return [one for one in judge(recording).findings if one.rule == "GS703"]


def agreeing(output, target):
    return functional.l1_loss(output, target)


def opposed(output, target):
    return functional.mse_loss(output, output.detach() * 2 - target)


def test_opposed_terms_are_a_note_with_the_line_of_a_term():
    (finding,) = found(recording_of(opposed))
    assert finding.severity == "note"
    assert dict(finding.evidence)["cosine"] == pytest.approx(-1)
    assert "one = functional" in finding.location.source


def test_terms_that_agree_are_not_found():
    assert found(recording_of(agreeing)) == []


def test_a_term_of_tiny_weight_is_drowned():
    (finding,) = found(recording_of(agreeing, weight=1e-7))
    assert "other is negligible compared with one" in finding.message


def with_pair(recording, **changes):
    evidence = tuple(
        dataclasses.replace(one, **changes) if isinstance(one, TermPairRecord) else one
        for one in recording.evidence
    )
    return dataclasses.replace(recording, evidence=evidence)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"cosine": -0.51}, 1),
        ({"cosine": -0.5}, 0),
        ({"cosine": -0.49}, 0),
        ({"cosine": math.nan}, 0),
        ({"first_norm": 10_001.0, "second_norm": 1.0, "cosine": 0.0}, 1),
        ({"first_norm": 10_000.0, "second_norm": 1.0, "cosine": 0.0}, 0),
        ({"first_norm": 1.0, "second_norm": 10_001.0, "cosine": 0.0}, 1),
        ({"first_norm": 0.0, "second_norm": 1.0, "cosine": math.nan}, 0),
        ({"first_norm": math.nan, "second_norm": 1.0, "cosine": math.nan}, 0),
        ({"first_norm": math.inf, "second_norm": math.nan, "cosine": math.nan}, 0),
    ],
)
def test_cosine_and_ratio_decide(changes, count):
    assert len(found(with_pair(recording_of(agreeing), **changes))) == count
