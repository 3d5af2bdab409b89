"""No false alarms: healthy models are never accused of an error, and hardly ever warned of."""

from collections.abc import Sequence

import pytest
import torch

import gradscope
from gradscope.recording.finding import Finding
from tests.architectures import ARCHITECTURES, built
from tests.rules.lookalikes import LOOKALIKES

WARNINGS_PER_PARAMETER = 0.02

CUT_IN_EARNEST = "frozen_and_unused"
"""Of the test bed: one of its layers is detached, and learns nothing."""

every_lookalike = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in LOOKALIKES]
)
every_architecture = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
        for case in ARCHITECTURES
        if case.name != CUT_IN_EARNEST
    ],
)


class Tally:
    """The parameters and warnings of all that was inspected so far."""

    def __init__(self):
        self.parameters = 0
        self.warnings: list[str] = []

    def add(self, name: str, model: torch.nn.Module, findings: Sequence[Finding]) -> None:
        self.parameters += len(list(model.parameters()))
        self.warnings += [
            f"{name}: {finding.rule} {finding.message}"
            for finding in findings
            if finding.severity == "warning"
        ]


@pytest.fixture(scope="module")
def tally():
    return Tally()


def errors(findings: Sequence[Finding]) -> list[str]:
    return [f"{one.rule}: {one.message}" for one in findings if one.severity == "error"]


@every_lookalike
def test_code_that_looks_sick_is_accused_of_no_error(case, tally):
    step = case.build()
    report = gradscope.inspect(step.model, step.batch, step.loss_fn, optimizer=step.optimizer)
    tally.add(case.name, step.model, report.findings)
    assert errors(report.findings) == []


@every_architecture
def test_architectures_are_accused_of_no_error(case, tally):
    model, batch = built(case)
    report = gradscope.inspect(model, batch, case.loss)
    tally.add(case.name, model, report.findings)
    assert errors(report.findings) == []


def test_warnings_of_healthy_code_are_rare(tally):
    limit = WARNINGS_PER_PARAMETER * tally.parameters
    assert len(tally.warnings) <= limit, "\n".join(tally.warnings)
