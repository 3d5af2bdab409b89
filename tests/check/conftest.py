"""Recordings of real samples, made once, and what a check makes of them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gradscope.check.options import Policy
from gradscope.check.results import CheckResult, Run, target_result
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.rules.inspecting import report_of_file

ROOT = Path(__file__).parents[2]


@cache
def recorded(sample, seed=0):
    return report_of_file(ROOT / "sample_models" / f"{sample}.py", seed=seed).recording


@pytest.fixture
def run_of(monkeypatch):
    """Runs of a sample by name, judged as told."""
    monkeypatch.chdir(ROOT)

    def run(sample, seed=0, **settings):
        recording = recorded(sample)
        recording = replace(recording, target=replace(recording.target, seed=seed))
        return Run(recording=recording, verdict=judge(recording, Settings(**settings)))

    return run


@pytest.fixture
def result_of(run_of):
    """A check of samples, each under one seed."""

    def check(*samples, policy=None, **settings):
        targets = tuple(target_result(name, [run_of(name, **settings)]) for name in samples)
        return CheckResult(
            version="0", command="gradscope check", targets=targets, policy=policy or Policy()
        )

    return check
