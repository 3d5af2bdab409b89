"""Gradients of single terms, against torch's own."""

from pathlib import Path

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.evidence.batches import LossTermRecord, ProbeRecord, TermPairRecord
from gradscope.recording.store import load_recording, save_recording
from tests.rules.inspecting import report_of_file

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))


class Weighted(nn.Module):
    """Two terms with weights, of one shared layer and two heads."""

    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)

    def terms(self, x):
        hidden = torch.tanh(self.trunk(x))
        return self.left(hidden).square().mean(), (self.right(hidden) - 1).abs().mean()

    def forward(self, x):
        left, right = self.terms(x)
        unused = hidden_norm(self.trunk)
        return {"loss": 2 * left + 0.5 * right, "left": left, "right": right, "unused": unused}


def hidden_norm(layer):
    return layer.weight.norm()


def test_norms_weights_and_cosine_are_torchs_own():
    torch.manual_seed(0)
    model = Weighted().double()
    recording = gradscope.inspect(model, X.double(), probe_steps=1).recording
    left, right = recording.evidence_of(LossTermRecord)
    assert (left.name, right.name) == ("left", "right")
    assert (left.weight, right.weight) == (2.0, 0.5)
    terms = model.terms(X.double())
    shared = list(model.trunk.parameters())
    gradients = [
        torch.cat(
            [g.flatten() for g in torch.autograd.grad(weight * term, shared, retain_graph=True)]
        )
        for weight, term in zip((2.0, 0.5), terms, strict=True)
    ]
    (pair,) = recording.evidence_of(TermPairRecord)
    assert pair.parameters == (0, 1)
    assert pair.first_norm == pytest.approx(float(gradients[0].norm()))
    assert pair.second_norm == pytest.approx(float(gradients[1].norm()))
    cosine = torch.nn.functional.cosine_similarity(*gradients, dim=0)
    assert pair.cosine == pytest.approx(float(cosine))
    assert "left" in recording.sites[left.site].source


def plain(output):
    return output.mean()


def with_logged_values(output):
    return {"loss": output.mean(), "a": output.square().mean(), "b": output.abs().mean()}


@pytest.mark.parametrize("loss", [plain, with_logged_values])
def test_a_loss_without_terms_has_none_and_is_no_reason_to_skip(loss):
    recording = gradscope.inspect(nn.Linear(3, 1), X, loss, probe_steps=1).recording
    examinations = recording.evidence_of(ProbeRecord)
    assert [one.skip_reason for one in examinations if one.name == "loss terms"] == [None]
    assert not recording.evidence_of(LossTermRecord)


def test_losses_that_detection_models_return_are_terms():
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            box, name = self.layer(x).unbind(1)
            return {"loss_box": box.square().mean(), "loss_name": name.square().mean()}

    recording = gradscope.inspect(Detector(), X, probe_steps=1).recording
    names = [term.name for term in recording.evidence_of(LossTermRecord)]
    assert names == ["loss_box", "loss_name"]


@pytest.mark.parametrize("path", ["loss_term_conflict", "float16_without_scaler"])
def test_what_was_found_is_kept_in_a_file(path, tmp_path):
    report = report_of_file(Path(__file__).parents[2] / "sample_models" / f"{path}.py")
    save_recording(report.recording, tmp_path / "kept.gradscope")
    kept = load_recording(tmp_path / "kept.gradscope")
    assert set(kept.evidence) == set(report.recording.evidence)
