"""What is left of the report when autograd ends a step."""

import json

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import gradscope
from gradscope.analysis.view import ViewOptions
from gradscope.errors import UserCodeError
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.report.render import render


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.exp(self.linear(x))
        hidden += 1
        return hidden


def test_the_report_holds_the_structure_and_no_gradient():
    model = Broken()
    report = gradscope.inspect(model, torch.randn(2, 4), lambda y: y.sum())
    assert {node.operation for node in report.recording.nodes} >= {"ExpBackward0", "AddBackward0"}
    assert all(row.grad is None and row.reach == "unknown" for row in report.parameters)
    assert report.recording.parameter_stats == ()
    told = json.loads(report.to_json())
    assert told["findings"][0]["rule"] == "GS503"
    assert (told["summary"]["parameters"]["none"], told["summary"]["parameters"]["unknown"]) == (
        0,
        2,
    )
    assert "2 parameters (2 not measured)" in render(report, "concise", ViewOptions(), None)
    assert model.linear.weight.grad is None
    assert any("RuntimeError" in note.reason for note in report.skipped)
    assert all("no such probe" not in skipped.reason for skipped in report.rules.skipped)


def test_the_recording_keeps_the_error(tmp_path):
    report = gradscope.inspect(Broken(), torch.randn(2, 4), lambda y: y.sum())
    report.save(tmp_path / "broken.gradscope")
    from gradscope.recording.store import load_recording

    again = load_recording(tmp_path / "broken.gradscope")
    assert again.evidence_of(AutogradErrorRecord) == report.recording.evidence_of(
        AutogradErrorRecord
    )


def test_other_exceptions_of_the_forward_are_raised():
    class Raises(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :1])

    with pytest.raises(UserCodeError, match="forward failed"):
        gradscope.inspect(Raises(4, 4), torch.randn(2, 4), F.mse_loss)
