"""Runs scripts as jobs of two gloo ranks, and judges what they leave."""

import re
from pathlib import Path
from textwrap import dedent, indent

from gradscope.recording.finding import Finding
from gradscope.rules.engine import judge_job
from tests.jobs import Jobs

HEAD = """
import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x))

    def loss(self, x, y):
        return cross_entropy(self(x), y)


teacher = torch.randn(16, 4, generator=torch.Generator().manual_seed(7))
draws = torch.Generator().manual_seed(100 + rank)


def batch(size=16):
    x = torch.randn(size, 16, generator=draws)
    return x, (x @ teacher).argmax(1)


"""
TAIL = """
print(f"rank {rank} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
"""


def training(
    after: str = "optimizer.step()",
    *,
    model: str = "DDP(Net())",
    optimizer: str = "SGD(model.parameters(), lr=0.1)",
    setup: str = "",
    loss: str = "cross_entropy(model(x), y)",
    steps: int = 12,
) -> str:
    """Return a script that trains a model, for `script`.

    Args:
        after: Lines of a step behind its backward.
        model: Code of the model.
        optimizer: Code of the optimizer of `torch.optim`.
        setup: Lines before the loop, in place of those of model and optimizer.
        loss: Code of the loss.
        steps: Number of steps.
    """
    setup = setup.strip("\n") or f"model = {model}\noptimizer = torch.optim.{optimizer}"
    step = [
        "x, y = batch()",
        "optimizer.zero_grad()",
        f"loss = {loss}",
        "loss.backward()",
        after.strip("\n"),
    ]
    return f"\n{setup}\nfor step in range({steps}):\n{indent(chr(10).join(step), '    ')}\n"


def script(body: str, folder: Path) -> Path:
    """Write a script with a loop of its own."""
    path = folder / "train.py"
    path.write_text(HEAD + dedent(body) + TAIL)
    return path


def marked(path: Path) -> set[int]:
    """Return the lines of a script that are marked as the fault."""
    lines = path.read_text().splitlines()
    return {number for number, line in enumerate(lines, start=1) if re.search("# FAULT", line)}


def judged(jobs: Jobs, body: str, folder: Path) -> tuple[tuple[Finding, ...], set[int]]:
    """Run a job, and return what the rules find in it, and the marked lines."""
    path = script(body, folder)
    recordings = jobs.recordings(path, folder / "job")
    assert len(recordings) == 2
    return judge_job(recordings).findings, marked(path)


def found(jobs: Jobs, body: str, folder: Path, rule: str) -> Finding:
    """Run a job, and return its only finding, which is of a rule and names the marked line."""
    findings, lines = judged(jobs, body, folder)
    assert [finding.rule for finding in findings] == [rule]
    (finding,) = findings
    named = {finding.location and finding.location.line, *(one.line for one in finding.related)}
    assert lines & named
    return finding


def clean(jobs: Jobs, body: str, folder: Path) -> None:
    """Run a healthy job, in which nothing is found but notes."""
    findings, _ = judged(jobs, body, folder)
    assert not [finding for finding in findings if finding.severity != "note"]
