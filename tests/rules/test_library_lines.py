"""Findings in an installed package point to the user's line that called it."""

import sys
from pathlib import Path

from tests.rules.watching import findings_of_script

LIBRARY = """
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 2)

    def forward(self, x):
        hidden = self.inner(x).relu()
        return self.outer(hidden.detach())
"""

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import torch
from thirdparty import Block

torch.manual_seed(1)
model = Block()
adam = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(6):
    output = model(torch.randn(8, 6))
    loss = output.square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_cut_in_a_library_points_to_the_call_of_its_model(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "thirdparty.py").write_text(LIBRARY)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(folder)))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (found,) = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS201"]
    assert (Path(found.location.file).name, found.location.source) == (
        "train.py",
        "output = model(torch.randn(8, 6))",
    )
    assert ("thirdparty.py", 13) in {(Path(one.file).name, one.line) for one in found.related}
    sys.modules.pop("thirdparty", None)
