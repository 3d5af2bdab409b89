"""Reports to export: of a training run, of an inspection, and of names that nobody would choose."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.finding import Finding
from gradscope.recording.records import EventRecord, Site
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.rules.settings import DEFAULT_SETTINGS
from gradscope.session.report import Report
from tests.recording.recordings import gradient, small, stat


@pytest.fixture(scope="session")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of two optimizers that take turns for twelve steps, with gradients that are clipped."""
    path = tmp_path_factory.mktemp("run") / "run.gradscope"
    _record_run(path)
    recording = load_recording(path)
    return Report.from_recording(recording, judge(recording, DEFAULT_SETTINGS))


def _record_run(path: Path) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    head = nn.Linear(8, 2)
    slow = torch.optim.SGD(body.parameters(), lr=0.01)
    fast = torch.optim.Adam(head.parameters(), lr=0.1)
    x, y = torch.randn(16, 4), torch.randint(2, (16,))
    with gradscope.watch(save=path, tensor_every=0):
        for _ in range(6):
            slow.zero_grad()
            nn.functional.cross_entropy(head(body(x)), y).backward()
            nn.utils.clip_grad_norm_(body.parameters(), 0.05)
            slow.step()
            fast.zero_grad()
            nn.functional.cross_entropy(head(body(x)), y).backward()
            fast.step()


@pytest.fixture(scope="session")
def inspected() -> Report:
    """Of a model with a part that gets no gradient, and a step before the judged one."""
    torch.manual_seed(0)
    return gradscope.inspect(
        _PartlyUsed(), (torch.randn(5, 4), torch.randn(5, 1)), "mse", steps=1, probe_steps=1
    )


class _PartlyUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


HOSTILE = ("</script>\"'", "a,b;c\td", "line\nbreak\r\n", "=1+1", "ünï-名", "x" * 3_000, "NaN", "")
"""Names."""


@pytest.fixture
def odd() -> Report:
    """Of hostile names, and numbers that are none."""
    one = small()
    nan, inf = float("nan"), float("inf")
    (parameter,) = one.parameters
    site = Site(file='/tmp/a "b",c.py', line=3, function="<lambda>", source="f('\n', \"x\")")
    return replace(
        Report.from_recording(
            replace(
                one,
                parameters=tuple(
                    replace(parameter, index=position, name=name)
                    for position, name in enumerate(HOSTILE)
                ),
                parameter_stats=(
                    stat(0, 0, gradient(nan), nan),
                    stat(0, 1, gradient(inf), inf),
                    stat(0, 2, gradient(0.0), 0.0),
                    stat(0, 3, None),
                    *(stat(0, position, gradient(1e-300), 5e-324) for position in range(4, 8)),
                ),
                sites=(site,),
                events=(
                    EventRecord(
                        step=0,
                        order=0,
                        kind="backward",
                        seconds=0.5,
                        site=0,
                        numbers=(("loss", nan), ("norm", -inf), ("x\n", 1.0)),
                        subject='loss["a"]',
                    ),
                ),
            )
        ),
        findings=(
            Finding(
                rule="GS103",
                name="non-finite-gradient",
                severity="error",
                message='it, and "that"\nbroke',
                location=site,
                parameters=HOSTILE,
                evidence=(("norm", nan), ("what", "a\nb"), ("limit", None)),
                remedy="mend it",
                fingerprint="0",
            ),
        ),
    )
