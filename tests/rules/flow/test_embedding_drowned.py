"""GS119: what drowns an embedding, and what may be added to one."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.inspecting import only

TIME = 200
ITEMS = torch.randint(30, (4, TIME), generator=torch.Generator().manual_seed(1))
NEXT = ITEMS.roll(-1, 1)
INDEX = torch.arange(TIME, dtype=torch.float32)[:, None]


class Model(nn.Module):
    """Adds `add(position)` to embeddings of a chosen size."""

    def __init__(self, add, size=1.0, *, normalises=True):
        super().__init__()
        torch.manual_seed(0)
        self.items, self.head = nn.Embedding(30, 16), nn.Linear(16, 30)
        self.norm = nn.LayerNorm(16) if normalises else nn.Identity()
        nn.init.normal_(self.items.weight, std=size)
        self.add = add

    def forward(self, items):
        x = functional.dropout(self.items(items), 0.1) + self.add()
        return self.head(self.norm(x))


class Tied(Model):
    """Uses the sum as scores of a mask, which no layer reads."""

    def forward(self, items):
        return self.items(items)[..., :1].expand(-1, -1, 30) + self.add()


def told(findings):
    return [finding for finding in findings if finding.rule == "GS119"]


def inspected(findings_of, model):
    def loss(output, batch):
        return functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())

    return findings_of(model, (ITEMS, NEXT), loss)


def sinusoids():
    angle = INDEX * torch.logspace(0, -4, 8)
    return torch.cat([angle.sin(), angle.cos()], dim=1)


@pytest.mark.parametrize("normalises", [True, False])
def test_raw_positions_are_found_at_their_line(findings_of, normalises):
    model = Model(lambda: INDEX, normalises=normalises)
    found = only(inspected(findings_of, model), "GS119")
    assert found.severity == "warning"
    assert "self.items(items)" in found.location.source
    rms = float(INDEX.square().mean().sqrt())
    dropped = 0.9**-0.5  # dropout scales what it keeps
    assert dict(found.evidence)["ratio"] == pytest.approx(rms / dropped, rel=0.1)


@pytest.mark.parametrize(
    "model",
    some_on_push(
        [
            Model(lambda: INDEX / TIME),
            Model(lambda: 0.8 * INDEX),  # a ratio of 92
            Model(sinusoids),
            Model(sinusoids, size=0.02),
            Model(lambda: torch.tensor(1000.0)),
            Tied(lambda: -1e9 * (INDEX > 100)),
        ],
        {0, 3},
    ),
    ids=["scaled", "near", "sinusoids", "small", "same-everywhere", "mask"],
)
def test_what_leaves_the_embedding_its_part_is_fine(findings_of, model):
    assert not told(inspected(findings_of, model))
