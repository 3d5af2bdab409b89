"""GS124: encodings of positions added along the examples of a batch, and along the positions."""

import pytest

from tests.rules import watching
from tests.rules.inspecting import marked_lines

SCRIPT = """
import torch
from torch import nn

EXAMPLES, POSITIONS, WIDTH = 6, 9, 16


class Encoding(nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.sin(torch.arange(50.0)[:, None] / torch.arange(1.0, WIDTH + 1))
        self.register_buffer("table", table.unsqueeze(1))

    def forward(self, x):
        return ADDED  # here


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.encode = nn.Embedding(20, WIDTH), Encoding()
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 32, dropout=0.0, batch_first=BATCH_FIRST
        )
        self.out = nn.Linear(WIDTH, 20)

    def forward(self, tokens):
        return self.out(self.layer(self.encode(self.embed(tokens))))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for _ in range(5):
    tokens = torch.randint(20, (SHAPE))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

BY_EXAMPLE = "x + self.table[: x.size(0)]"
BY_POSITION = "x + self.table[: x.size(1)].transpose(0, 1)"


def told(tmp_path, added, *, batch_first=True, shape="EXAMPLES, POSITIONS"):
    script = tmp_path / "train.py"
    text = SCRIPT.replace("ADDED", added).replace("BATCH_FIRST", str(batch_first))
    script.write_text(text.replace("SHAPE", shape))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS124"]
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
    return found


@pytest.mark.parametrize(
    "added", [BY_EXAMPLE, "self.table[: x.size(0), :] + x", "x + 0 + self.table[: x.size(0)]"]
)
def test_an_encoding_along_the_examples_is_an_error(tmp_path, added):
    (found,) = told(tmp_path, added)
    assert found.severity == "error"
    assert "the 6 examples of the batch" in found.message


HEALTHY = {
    "along the positions": (BY_POSITION, {}),
    "positions first": (BY_EXAMPLE, {"batch_first": False, "shape": "POSITIONS, EXAMPLES"}),
    "as many of both": (BY_EXAMPLE, {"shape": "POSITIONS, POSITIONS"}),
    "computed for each example": (
        "x + torch.sin(x.detach().mean((1, 2), keepdim=True) * self.table[:1, 0])",
        {},
    ),
    "one for all": ("x + self.table[3]", {}),
    "one number for each example": ("x + x.detach().mean((1, 2))[:, None, None].tanh()", {}),
    "a copy of as many": ("x + self.table[:6].clone()[:]", {}),
}


@pytest.mark.parametrize(("added", "settings"), HEALTHY.values(), ids=HEALTHY)
def test_other_sums_are_fine(tmp_path, added, settings):
    assert not told(tmp_path, added, **settings)
