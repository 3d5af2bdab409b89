"""Targets in whose step autograd raises, their faulty lines marked."""

from tests.rules.inspecting import only

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
        self.kept = None

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

model = Net()
batch = torch.randn(3, 4), torch.randn(3, 2)
"""


def marked(text: str, mark: str) -> list[str]:
    """Return the lines that end with a mark, as a finding shows them."""
    return [line.strip() for line in text.splitlines() if line.endswith(mark)]


def check(inspect_file, code: str, text: str, **chosen: object):
    """Inspect a target; the finding points to the line `# <-`, and relates to those `# also`."""
    whole = HEAD + text
    report = inspect_file(whole, **chosen)
    finding = only(report.findings, code)
    assert {one.rule for one in report.findings} == {code}
    wanted = marked(whole, "# <-")
    assert [finding.location.source] == wanted if wanted else finding.location is None
    assert {position.source for position in finding.related} == set(marked(whole, "# also"))
    return finding
