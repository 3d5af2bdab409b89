"""GS310: a note on batch norm within micro-batches."""

import dataclasses

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run


def loop(passes, *, layers=("Linear", "BatchNorm1d"), other=()):
    run = Run()
    weights = run.model("model", 4, layers=layers)
    run.model("teacher", 2, layers=other)
    sgd = run.optimizer(weights)
    for _ in range(5):
        run.zero(sgd, line=10)
        for _ in range(passes):
            run.backward(weights, line=11, divided=passes, reduction=1, rows=8)
        run.step(sgd, line=12)
    return run


def test_batch_norm_in_accumulation_is_a_note():
    (found,) = loop(4).findings("GS310")
    assert (found.severity, found.location.line) == ("note", 11)
    assert found.modules == ("model.1",)


def test_single_passes_other_norms_and_other_models_are_not_mentioned():
    assert not loop(1).findings("GS310")
    assert not loop(4, layers=("LayerNorm",)).findings("GS310")
    assert not loop(4, layers=(), other=("BatchNorm2d",)).findings("GS310")


def test_frozen_statistics_are_fine():
    recording = loop(4).recording()
    modules = tuple(dataclasses.replace(one, training=False) for one in recording.modules)
    assert not judge(dataclasses.replace(recording, modules=modules)).findings
