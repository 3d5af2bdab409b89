"""GS719: masks of attention that hide the tokens, and masks that look like them."""

import pytest

from tests.rules.inspecting import marked_lines, only

CLASSIFIER = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
PAD = 0

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(40, 16), nn.Embedding(13, 16)
        self.first = nn.Parameter(torch.randn(1, 1, 16))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(self.layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, ids):
        x = torch.cat([self.first.expand(len(ids), -1, -1), self.embed(ids)], 1)
        x = x + self.position(torch.arange(13))
        mask = F.pad(MASK, (1, 0), value=EXTRA)  # made
        scores = x @ x.transpose(1, 2) / 4
        return self.head((USE)[:, 0])

model = Reader()
ids = torch.randint(1, 40, (16, 12))
ids[torch.arange(12) >= torch.randint(4, 12, (16, 1))] = PAD
batch = (ids, torch.randint(0, 3, (16,)))

def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
"""

IGNORING = {
    "attention": "self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0]",
    "encoder": "self.encoder(x, src_key_padding_mask=mask)",
    "filled": "scores.masked_fill(mask[:, None], float('-inf')).softmax(-1) @ x",
    "filled with a large number": "scores.masked_fill(mask[:, None, :], -1e9).softmax(-1) @ x",
}
SEEING = {
    "boolean": "F.scaled_dot_product_attention(x, x, x, mask[:, None].expand(-1, 13, -1))",
    "floating": "F.scaled_dot_product_attention("
    "x, x, x, torch.zeros(16, 1, 13).masked_fill(~mask[:, None], float('-inf')))",
    "chosen": "torch.where(mask[:, None], scores, -1e9).softmax(-1) @ x",
}


def found(inspect_file, mask, extra, use):
    text = CLASSIFIER.replace("MASK", mask).replace("EXTRA", extra).replace("USE", use)
    return [one for one in inspect_file(text).findings if one.rule == "GS719"]


@pytest.mark.parametrize("use", IGNORING.values(), ids=IGNORING)
def test_a_mask_that_ignores_the_tokens_is_told_where_it_is_made(inspect_file, tmp_path, use):
    one = only(found(inspect_file, "ids != PAD", "False", use), "GS719")
    assert {one.location.line} == marked_lines(tmp_path / "model.py", "# made")
    assert "positions of padding (token 0) visible" in one.message


@pytest.mark.parametrize("use", SEEING.values(), ids=SEEING)
def test_a_mask_that_sees_the_padding_is_a_finding(inspect_file, use):
    assert len(found(inspect_file, "ids == PAD", "True", use)) == 1


@pytest.mark.parametrize("use", IGNORING.values(), ids=IGNORING)
def test_a_mask_that_ignores_the_padding_is_none(inspect_file, use):
    assert not found(inspect_file, "ids == PAD", "False", use)


@pytest.mark.parametrize("use", SEEING.values(), ids=SEEING)
def test_a_mask_that_sees_the_tokens_is_none(inspect_file, use):
    assert not found(inspect_file, "ids != PAD", "True", use)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param("(ids != PAD) & (ids != 7)", id="some tokens are visible"),
        pytest.param("torch.arange(12).expand(16, -1) < 8", id="the same positions of all"),
        pytest.param("torch.arange(12).expand(16, -1) > 0", id="only the first is visible"),
        pytest.param("torch.rand(16, 12) < 0.5", id="random positions"),
    ],
)
def test_other_masks_are_none(inspect_file, mask):
    assert not found(inspect_file, mask, "False", IGNORING["filled"])
