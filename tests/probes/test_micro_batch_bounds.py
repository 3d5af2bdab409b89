"""Micro-batches of realistic models, their limits, and restored state."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.errors import GradscopeError
from gradscope.recording.evidence.batches import (
    AccumulatedGradient,
    AccumulationRecord,
    MicroBatchRecord,
)
from gradscope.recording.store import load_recording, save_recording
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.probes.micro_batching import IGNORING, MEAN, X, Y, compared, net, recorded


@pytest.fixture(scope="module")
def language_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config).train()


def token_batch():
    ids = torch.arange(48).view(4, 12)
    mask = torch.ones_like(ids)
    for row, length in enumerate((12, 10, 4, 6)):
        mask[row, length:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def test_language_model_goes_by_its_tokens_under_dropout(language_model):
    recording = recorded(language_model, token_batch(), None, 2)
    (found,) = recording.evidence_of(AccumulationRecord)
    assert (found.law, found.unit) == ("counted", "targets")
    # The first token of each text is nobody's target.
    assert [part.count for part in recording.evidence_of(MicroBatchRecord)] == [20, 8]
    assert found.draws > 0
    assert found.unmatched == 0


def test_positions_are_repeated(language_model):
    batch = {**token_batch(), "position_ids": torch.arange(12)[None]}
    found = compared(language_model, batch, None, 4)
    assert found.repeated == ("batch['position_ids']",)
    assert found.law == "counted"


def test_compiled_model_is_compared_too():
    model = torch.compile(net(nn.Dropout(0.5)), backend="eager")
    found = compared(model, (X, Y), MEAN, 4)
    assert (found.law, found.draws, found.unmatched) == ("mean", 1, 0)


def test_sparse_gradients():
    model = nn.Sequential(nn.EmbeddingBag(30, 6, sparse=True), nn.Linear(6, 3))
    ids = torch.arange(24).view(8, 3)
    assert compared(model, (ids, Y), MEAN, 4).law == "mean"


def test_underflow_of_float16_is_not_laid_on_the_loss():
    def tiny(model, batch):
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(batch[0]) * 1e-4
        return 1024 * (output.float() - 1e-4).square().mean()

    found = compared(net(), (X.repeat(32, 1), Y.repeat(32)), tiny, 2)
    assert (found.law, found.obstruction) == ("none", "half precision")


def test_steps_come_before():
    recording = recorded(net(nn.Dropout(0.5)), (X, Y), MEAN, 4, steps=2, optimizer="sgd", lr=0.1)
    (found,) = recording.evidence_of(AccumulationRecord)
    judged = next(step for step in recording.steps if step.kind == "step")
    assert found.loss == judged.loss
    assert found.law == "mean"


def test_gradient_of_a_given_vector_is_none_of_a_loss():
    target = target_from_objects(net(), X, None, optimizer=None, grad_output="ones")
    recording = record(
        target, trial=Trial(probe_steps=0, micro_batches=2), eager=False, command="inspect"
    )
    assert [item.reason for item in recording.skipped] == [
        "backward starts from a vector, not from a loss"
    ]


@pytest.mark.parametrize("factor", [0.0, float("inf")])
def test_gradient_that_tells_nothing_is_not_compared(factor):
    recording = recorded(net(), (X, Y), lambda out, y: (out * factor).sum(), 2)
    assert recording.evidence_of(AccumulationRecord) == ()
    assert any(item.what == "2 micro-batches" for item in recording.skipped)


@pytest.mark.parametrize(
    ("batch", "number", "message"),
    [
        ((X, Y), 9, "has 8 examples only"),
        ((X[:1], Y[:1]), 2, "has 1 example only"),
        ({"x": 3}, 2, "no dimension to split"),
    ],
)
def test_too_many_micro_batches_are_an_error(batch, number, message):
    with pytest.raises(GradscopeError, match=message):
        recorded(net(), batch, MEAN, number)


def test_python_interface_takes_them_too():
    report = gradscope.inspect(net(), (X, Y), MEAN, probe_steps=0, micro_batches=4)
    assert json.loads(report.to_json())["accumulation"]["law"] == "mean"
    for number in (1, True, 2.0):
        with pytest.raises(GradscopeError, match=f"micro_batches is {number}, expected 2 or more"):
            gradscope.inspect(net(), (X, Y), MEAN, micro_batches=number)


def test_forward_that_needs_the_whole_batch_says_why():
    def rigid(model, batch):
        return functional.cross_entropy(model(batch[0]).view(8, 3), batch[1])

    recording = recorded(net(), (X, Y), rigid, 2)
    assert recording.evidence_of(AccumulationRecord) == ()
    (skipped,) = recording.skipped
    assert skipped.what == "2 micro-batches"
    assert "shape '[8, 3]' is invalid" in skipped.reason


def test_everything_is_restored():
    model = net(nn.BatchNorm1d(16), nn.Dropout(0.5))
    model(X).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held = [parameter.grad for parameter in model.parameters()]
    values = [gradient.clone() for gradient in held]
    versions = [tensor._version for tensor in (*model.parameters(), *model.buffers())]
    state = torch.get_rng_state()
    recorded(model, (X, IGNORING), MEAN, 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is g for p, g in zip(model.parameters(), held, strict=True))
    assert all(torch.equal(g, value) for g, value in zip(held, values, strict=True))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert versions == [tensor._version for tensor in (*model.parameters(), *model.buffers())]
    assert all(module.training for module in model.modules())


def test_nothing_else_of_the_recording_changes():
    plain, asked = (
        recorded(net(nn.Dropout(0.5)), (X, Y), MEAN, number, steps=0) for number in (None, 4)
    )
    assert plain.parameter_stats == asked.parameter_stats
    assert plain.evidence_of(AccumulationRecord) == ()


def test_recording_can_be_saved_and_loaded(tmp_path):
    recording = recorded(net(), (X, IGNORING), MEAN, 4)
    save_recording(recording, tmp_path / "kept.gradscope")
    loaded = load_recording(tmp_path / "kept.gradscope")
    for kind in (AccumulationRecord, MicroBatchRecord, AccumulatedGradient):
        assert repr(loaded.evidence_of(kind)) == repr(recording.evidence_of(kind))
