"""GS221: normalisations with detached statistics, and what looks like them."""

import pytest

from tests.rules.inspecting import marked_lines, only

NETWORK = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("square", torch.ones(16))
        self.shift, self.scale = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.ones(16))
        self.running = torch.zeros(16)

    def forward(self, x):
STATEMENTS

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(8, 16), Norm(), nn.SiLU(), nn.Linear(16, 16), Norm(), nn.SiLU(), nn.Linear(16, 2)
)
batch = torch.randn(64, 8)

def loss_fn(output, batch):
    return (output - batch[:, :2]).square().mean()
"""


def found(inspect_file, statements):
    indented = "\n".join(" " * 8 + line for line in statements.strip().splitlines())
    report = inspect_file(NETWORK.replace("STATEMENTS", indented))
    return [one for one in report.findings if one.rule == "GS221"]


SICK = {
    "input": """
mean = x.detach().mean(1, keepdim=True)  # <-
variance = x.detach().var(1, keepdim=True, correction=0)
return (x - mean) / (variance + 1e-8).sqrt()
""",
    "statistics": """
mean = x.mean(0).detach()  # <-
return (x - mean) * (x.var(0) + 1e-8).rsqrt().detach()
""",
    "one detach": """
fixed = x.detach()  # <-
return (x - fixed.mean(1, keepdim=True)) / fixed.std(1, keepdim=True)
""",
    "gain before the division": """
mean, std = x.mean(-1, keepdim=True).detach(), x.std(-1, keepdim=True).detach()  # <-
return self.scale * (x - mean) / (std + 1e-6) + self.shift
""",
    "no_grad": """
with torch.no_grad():
    mean = x.mean(0)  # <-
    std = x.std(0)
return (x - mean) / std
""",
}

HEALTHY = {
    "own gradient": """
mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, correction=0)
return (x - mean) / (variance + 1e-8).sqrt()
""",
    "centring alone": "return x - x.detach().mean(0)",
    "scaling alone": "return x / x.detach().square().mean().sqrt()",
    "scale alone is detached": "return (x - x.mean(0)) / x.detach().std(0)",
    "running statistics": """
with torch.no_grad():
    self.mean.lerp_(x.mean(0), 0.1)
    self.square.lerp_(x.var(0), 0.1)
return (x - self.mean) / (self.square + 1e-8).sqrt()
""",
    "running statistics by assignment": """
self.running = 0.9 * self.running + 0.1 * x.detach().mean(0)
deviation = (x.detach() - self.running).square().mean(0).sqrt()
return (x - self.running) / (0.5 + deviation)
""",
    "parameters that start at the statistics": """
if not bool(self.shift.any()):
    self.shift.data.copy_(x.detach().mean(0))
    self.scale.data.copy_(x.detach().std(0))
return (x - self.shift) / self.scale
""",
}


@pytest.mark.parametrize("statements", SICK.values(), ids=SICK)
def test_detached_statistics_are_told_where_the_mean_loses_its_gradient(
    inspect_file, tmp_path, statements
):
    one = only(found(inspect_file, statements), "GS221")
    assert {one.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert "in 2 normalisations" in one.message


@pytest.mark.parametrize("statements", HEALTHY.values(), ids=HEALTHY)
def test_what_is_no_detached_normalisation_is_no_finding(inspect_file, statements):
    assert not found(inspect_file, statements)
