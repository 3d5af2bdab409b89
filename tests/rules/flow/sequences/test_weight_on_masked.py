"""GS123: masks before a softmax that leave weight on the hidden positions, and healthy ones."""

import pytest
import torch
from torch import nn

from tests.rules import watching
from tests.rules.inspecting import marked_lines

LENGTH = 12

SCRIPT = """
import torch
from torch import nn

T = 12


class Attention(nn.Module):
    def __init__(self, width=16, words=20):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.position = nn.Parameter(0.1 * torch.randn(T, width))
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        q, k, v = self.query(x), self.key(x), self.value(x)
        keep = KEEP
        scores = q @ k.transpose(1, 2) / 4
        BODY
        return self.out(mixed)


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for _ in range(6):
    tokens = torch.randint(1, 20, (8, T))
    lengths = torch.randint(4, T - 3, (8,))
    tokens[torch.arange(T) >= lengths[:, None]] = 0
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CAUSAL = "torch.ones(T, T).tril()[None]"
PADDING = "(tokens != 0).float()[:, None]"

SICK = {
    "product before": "mixed = torch.softmax(scores * keep, -1) @ v  # here",
    "small fill": "mixed = torch.softmax(scores.masked_fill(keep == 0, 1e-9), -1) @ v  # here",
    "added": "mixed = torch.softmax(scores + keep, -1) @ v  # here",
    "fused": (
        "mixed = nn.functional.scaled_dot_product_attention("
        "q, k, v, attn_mask=keep.expand(len(q), T, T))  # here"
    ),
}

HEALTHY = {
    "large fill": "mixed = torch.softmax(scores.masked_fill(keep == 0, -1e9), -1) @ v",
    "infinite fill": 'mixed = torch.softmax(scores.masked_fill(keep == 0, -float("inf")), -1) @ v',
    "both": (
        "mixed = torch.softmax(scores.masked_fill(keep == 0, -1e9), -1)"
        ".masked_fill(keep == 0, 0.0) @ v"
    ),
    "large numbers added": "mixed = torch.softmax(scores + (1 - keep) * -1e9, -1) @ v",
    "divided again": (
        "kept = torch.softmax(scores, -1) * keep; mixed = kept / kept.sum(-1, keepdim=True) @ v"
    ),
    "fused": (
        "mixed = nn.functional.scaled_dot_product_attention("
        "q, k, v, attn_mask=keep.expand(len(q), T, T) != 0)"
    ),
    "values masked": "mixed = torch.softmax(scores, -1) @ (v * keep[:, :1].transpose(1, 2))",
    "best scores": (
        "weight = torch.softmax(scores, -1); "
        "mixed = (weight * (weight >= weight.topk(3).values[..., -1:]).float()) @ v"
    ),
    "distances added": "mixed = torch.softmax(scores - keep.cumsum(-1) / 8, -1) @ v",
}


def told(tmp_path, body, keep):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("BODY", body).replace("KEEP", keep))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS123"]
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
    return found


@pytest.mark.parametrize("keep", [CAUSAL, PADDING], ids=["causal", "padding"])
@pytest.mark.parametrize("body", SICK.values(), ids=SICK)
def test_a_mask_that_leaves_weight_is_a_warning(tmp_path, body, keep):
    assert [one.severity for one in told(tmp_path, body, keep)] == ["warning"]


@pytest.mark.parametrize("keep", [CAUSAL, PADDING], ids=["causal", "padding"])
@pytest.mark.parametrize("body", HEALTHY.values(), ids=HEALTHY)
def test_a_mask_that_hides_is_fine(tmp_path, body, keep):
    assert not told(tmp_path, body, keep)


def test_the_weight_is_that_of_the_hidden_positions(tmp_path):
    (found,) = told(tmp_path, "mixed = torch.softmax(0 * scores * keep, -1) @ v  # here", CAUSAL)
    # The independent oracle: equal weights, of which a row hides those after it.
    hidden = [1 - row / LENGTH for row in range(1, LENGTH)]
    expected = sum(hidden) / len(hidden)
    assert dict(found.evidence)["weight"] == pytest.approx(expected, rel=1e-5)


def test_torchs_layer_with_a_mask_of_numbers_is_told(tmp_path):
    layer = "nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)"
    script = tmp_path / "train.py"
    body = "mixed = self.layer(x, src_mask=keep[0])  # here"
    text = SCRIPT.replace("BODY", body).replace("KEEP", CAUSAL)
    script.write_text(
        text.replace("        self.value,", f"        self.layer = {layer}\n        self.value,")
    )
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS123"]
    assert [one.location.line for one in found] == sorted(marked_lines(script, "# here"))


def test_a_softmax_reads_added_ones_as_scores():
    scores = torch.randn(3, 5, dtype=torch.float64)
    mask = torch.ones(3, 5, dtype=torch.float64).tril()
    value = torch.eye(5, dtype=torch.float64)
    # What the rule says of fused attention, by torch's own function.
    fused = nn.functional.scaled_dot_product_attention(
        scores[None], torch.eye(5, dtype=torch.float64)[None], value[None], mask[None], scale=1.0
    )
    torch.testing.assert_close(fused[0], torch.softmax(scores + mask, -1))


@pytest.mark.parametrize("keep", [CAUSAL, PADDING], ids=["causal", "padding"])
@pytest.mark.parametrize(
    "body",
    [
        "mixed = (torch.softmax(scores, -1) * keep) @ v  # here",
        "mixed = scores.softmax(-1).masked_fill(keep == 0, 0.0) @ v  # here",
    ],
    ids=["product", "fill"],
)
def test_a_mask_after_the_softmax_is_told_once_by_another_rule(tmp_path, body, keep):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("BODY", body).replace("KEEP", keep))
    found = watching.findings_of_script(script, tmp_path)
    assert [one.rule for one in found if one.rule in ("GS122", "GS123")] == ["GS122"]
