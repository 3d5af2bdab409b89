"""Tests the width of a failing test's text."""

import dataclasses

import pytest
import torch
from torch import nn

from gradscope.integrations import pytest_plugin
from gradscope.integrations.check_events import listening
from gradscope.report.brief import failure_text
from gradscope.testing import UnhealthyGradientsError, assert_gradients_healthy
from tests.nightly import some_on_push

INDENT = 8


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 3), nn.Linear(3, 4)

    def forward(self, x):
        code = self.encoder(x).detach()  # a line that is longer than a narrow terminal is
        return self.decoder(code)


def unhealthy() -> UnhealthyGradientsError:
    with pytest.raises(UnhealthyGradientsError) as caught:
        assert_gradients_healthy(Cut(), torch.ones(2, 4), "mean", fail_level="note")
    return caught.value


def width(text: str) -> int:
    """The widest line behind the first, which pytest begins with the exception's name."""
    return max(map(len, text.splitlines()[1:])) + INDENT


@pytest.mark.parametrize(
    ("columns", "widest"),
    some_on_push([("80", 80), ("72", 72), ("40", 68), ("200", 100), ("100", 100)], 2),
)
def test_text_is_as_wide_as_the_terminal(monkeypatch, columns, widest):
    monkeypatch.setenv("COLUMNS", columns)
    assert widest - 12 < width(str(unhealthy())) <= widest


def test_who_listens_knows_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with listening(lambda check: None, 72):
        assert width(str(unhealthy())) <= 72


def test_lines_of_further_findings_are_folded(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    error = unhealthy()
    findings = tuple(
        dataclasses.replace(error.findings[0], rule=f"GS9{number:02}") for number in range(20)
    )
    assert width(failure_text(error.report, findings, None)) <= 80


def test_terminal_behind_the_capture_counts(run_tests, monkeypatch):
    monkeypatch.setattr(pytest_plugin, "_columns", lambda config: 72)
    result = run_tests("""
        def test_cut(gradscope):
            gradscope.check(CUT, BATCH, mse_loss)
    """)
    told = [line for line in result.outlines if line.startswith("E    ")]
    assert "GS201" in told[0]
    assert 60 < max(map(len, told[1:])) <= 72
