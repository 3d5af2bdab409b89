import pytest

from tests.nightly import some_on_push
from tests.rules.inspecting import only

MODEL = """
import torch
from torch import nn
from itertools import repeat

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        BLOCKS
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)

model = Net()
batch = torch.randn(8, 6)

def loss_fn(output, batch):
    return output.square().mean()
"""


@pytest.mark.parametrize(
    "blocks",
    some_on_push(
        [
            "self.blocks = nn.ModuleList([nn.Linear(6, 6)] * 3)",
            "self.blocks = nn.Sequential(*(3 * [nn.Linear(6, 6)]))",
            "self.blocks = nn.Sequential(*repeat(nn.Linear(6, 6), 3))",
            "self.blocks = nn.ModuleList(\n        [nn.Linear(6, 6)]\n        * 3\n    )",
        ],
        {0, 2},
    ),
)
def test_a_multiplied_list_is_found_at_its_line(inspect_file, blocks):
    found = only(inspect_file(MODEL.replace("BLOCKS", blocks)).findings, "GS219")
    assert (found.severity, dict(found.evidence)["entries"]) == ("warning", 3)
    assert "3 entries of blocks are one Linear: they share 2 parameters" in found.message
    assert found.location.line == 9


def test_one_module_under_all_keys_is_found(inspect_file):
    blocks = 'self.blocks = nn.ModuleDict(dict.fromkeys("abc", nn.Linear(6, 6)))'
    text = MODEL.replace("BLOCKS", blocks).replace("in self.blocks", "in self.blocks.values()")
    found = only(inspect_file(text).findings, "GS219")
    assert dict(found.evidence)["entries"] == 3


@pytest.mark.parametrize(
    "blocks",
    some_on_push(
        [
            "self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])",
            "self.blocks = nn.ModuleList([nn.Linear(6, 6), *[nn.ReLU()] * 3])",
            "layer = nn.Linear(6, 6); self.blocks = nn.ModuleList([layer, nn.ReLU(), layer])",
            "layer = nn.Linear(6, 6); self.blocks = nn.ModuleList(layer for _ in range(3))",
            "self.blocks = nn.ModuleList([nn.Linear(2 * 3, 6), nn.Linear((6) * 1, 6)])",
            "self.blocks = [nn.Linear(6, 6)] * 3; self.block = self.blocks[0]",
        ],
        2,
    ),
)
def test_layers_of_their_own_and_layers_shared_on_purpose_are_fine(inspect_file, blocks):
    report = inspect_file(MODEL.replace("BLOCKS", blocks))
    assert "GS219" not in {one.rule for one in report.findings}
