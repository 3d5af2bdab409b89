"""Reports to look at in a browser."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import gradscope
from gradscope.session.report import Report
from tests.rules.inspecting import report_of_file

SAMPLES = Path(__file__).parents[2] / "sample_models"
HOSTILE = "</script><img src=x onerror='harmed=1'><b class=hostile>[/x] & \"q\" ${1} {{1}}"


def sample_report(name: str) -> Report:
    """Return the report of a sample, findings included."""
    return report_of_file(SAMPLES / name)


def hostile_report() -> Report:
    """Return the report of a model whose every name is markup."""
    torch.manual_seed(0)
    model = nn.ModuleDict({HOSTILE: nn.Linear(4, 4), f"{HOSTILE}2": nn.Linear(4, 1)})
    model.forward = lambda x: model[f"{HOSTILE}2"](torch.sigmoid(model[HOSTILE](x)))
    report = gradscope.inspect(model, torch.randn(8, 4), lambda output: output.square().mean())
    target = replace(report.recording.target, name=HOSTILE, batch=HOSTILE, loss=HOSTILE)
    return Report.from_recording(replace(report.recording, target=target), report.rules)
