"""GS730: language models that see the token which they are to predict, and others."""

import pytest

from tests.nightly import some_on_push

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.other = nn.Embedding(30, 16), nn.Embedding(30, 16)
        self.position = nn.Embedding(12, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.lstm = nn.LSTM(16, 8, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(16, 16, batch_first=True)
        self.first = nn.GRU(16, 16)
        self.squeeze = nn.Linear(16, 5)
        self.widen = nn.Linear(5, 16)
        self.near = nn.Conv1d(16, 16, 3, padding=1)
        self.bare = nn.Conv1d(16, 16, 3)
        self.late = nn.Conv1d(16, 16, 3, padding=2)
        self.head = nn.Linear(16, 30)

    def forward(self, ids, following):
        x = self.embed(ids) + self.position(torch.arange(12))
        hidden = torch.ones(12, 12).triu(1).bool()
        fading = (0.9 ** (torch.arange(12)[:, None] - torch.arange(12))).tril()
        scores = x @ x.transpose(1, 2) / 4
        heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
        channels = x.transpose(1, 2)
        y = USE  # mixes
        logits = self.head(y)
        return LOSS  # judges

model = Model()
text = torch.randint(1, 30, (16, 13))
batch = (text[:, :-1], text[:, 1:])

def loss_fn(output, batch):
    return output
"""

NEXT = "F.cross_entropy(logits.flatten(0, 1), following.flatten())"
OWN = "F.cross_entropy(logits.transpose(1, 2), ids)"

SEEING = {
    "fused": "F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)",
    "fused with a mask the wrong way": (
        "F.scaled_dot_product_attention(heads, heads, heads, hidden | torch.eye(12).bool())"
        ".transpose(1, 2).flatten(2)"
    ),
    "by hand": "x + scores.softmax(-1) @ x",
    "by letters": "x + torch.einsum('bij,bjd->bid', scores.softmax(-1), x)",
    "module": "self.attention(x, x, x)[0]",
    "module without weights": "self.attention(x, x, x, need_weights=False)[0]",
    "layer": "self.layer(x)",
    "both directions": "self.lstm(x)[0]",
    "one of two": "self.layer(self.layer(x, src_mask=hidden))",
    "retention upside down": "x + (scores * fading.T) @ x",
    "scaled scores without a softmax": "x + (x @ x.transpose(1, 2)) / 4 @ x",
}
BLIND = {
    "fused": (
        "F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)"
        ".transpose(1, 2).flatten(2)"
    ),
    "fused with a mask": (
        "F.scaled_dot_product_attention(heads, heads, heads, ~hidden).transpose(1, 2).flatten(2)"
    ),
    "by hand": "x + scores.masked_fill(hidden, float('-inf')).softmax(-1) @ x",
    "by hand with a large number": "x + scores.masked_fill(hidden, -1e4).softmax(-1) @ x",
    "weights masked afterwards": (
        "x + F.normalize(scores.softmax(-1).masked_fill(hidden, 0.0), p=1, dim=-1) @ x"
    ),
    "module": "self.attention(x, x, x, attn_mask=hidden)[0]",
    "module with a mask of numbers": (
        "self.attention(x, x, x, attn_mask=torch.zeros(12, 12).masked_fill(hidden, -1e9))[0]"
    ),
    "layer": "self.layer(x, src_mask=hidden, is_causal=True)",
    "one direction": "self.gru(x)[0]",
    "retention": "x + (scores * fading) @ x",
    "time first": "self.first(x.transpose(0, 1))[0].transpose(0, 1)",
}


def found(inspect_file, use, loss):
    text = MODEL.replace("USE", use).replace("LOSS", loss)
    result = inspect_file(text)
    return [one for one in result.findings if one.rule == "GS730"], text


def lines(text, mark):
    return [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}")]


@pytest.mark.parametrize("use", some_on_push(list(SEEING.values()), {0, 2, 7, 9}))
def test_the_next_token_in_sight_is_found(inspect_file, use):
    (one,), text = found(inspect_file, use, NEXT)
    assert one.severity == "warning"
    assert [one.location.line] == lines(text, "mixes")
    assert 80 < dict(one.evidence)["seen"] <= 8 * 11


@pytest.mark.parametrize("use", some_on_push(list(BLIND.values()), {0, 2, 5, 9}))
def test_hidden_tokens_are_fine(inspect_file, use):
    assert not found(inspect_file, use, NEXT)[0]


@pytest.mark.parametrize("use", some_on_push(list(BLIND.values()), {1, 8}))
def test_targets_that_nobody_shifted_are_found(inspect_file, use):
    (one,), text = found(inspect_file, use, OWN)
    assert [one.location.line] == lines(text, "judges")


@pytest.mark.parametrize(
    "loss",
    [
        "-logits.log_softmax(-1).gather(2, ids[:, :, None]).squeeze(2).mean()",
        "F.nll_loss(logits.log_softmax(-1).flatten(0, 1), ids.flatten())",
    ],
)
def test_other_losses_of_their_own_tokens_are_found(inspect_file, loss):
    assert found(inspect_file, BLIND["fused"], loss)[0]


def test_a_loss_that_shifts_is_judged(inspect_file):
    loss = "F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())"
    assert found(inspect_file, SEEING["by hand"], loss)[0]
    assert not found(inspect_file, BLIND["by hand"], loss)[0]


SHIFTED = "F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())"
CONVOLVED = {
    "padded on both sides": ("self.near(channels).transpose(1, 2)", NEXT, 1),
    "beside a shortcut": ("x + self.near(channels).relu().transpose(1, 2)", SHIFTED, 1),
    "a second one": ("self.near(self.near(channels).relu()).transpose(1, 2)", NEXT, 1),
    "padded on the left": ("self.bare(F.pad(channels, (2, 0))).transpose(1, 2)", NEXT, 0),
    "chomped": ("self.late(channels)[:, :, :-2].transpose(1, 2)", NEXT, 0),
    "of tokens moved to the right": (
        "self.near(F.pad(channels[:, :, :-1], (1, 0))).transpose(1, 2)",
        NEXT,
        0,
    ),
    "moved to the right": (
        "F.pad(self.near(channels)[:, :, :-1], (1, 0)).transpose(1, 2)",
        NEXT,
        0,
    ),
    "masked": (
        "F.conv1d(channels, self.near.weight * torch.tensor([1.0, 1.0, 0.0]), padding=1)"
        ".transpose(1, 2)",
        NEXT,
        0,
    ),
    "of a text that an encoder gets, too": (
        "self.gru(x)[0] + self.near(self.other(ids).transpose(1, 2)).transpose(1, 2)",
        NEXT,
        0,
    ),
    "of its own tokens": ("self.near(channels).transpose(1, 2)", OWN, 0),
}


@pytest.mark.parametrize("name", some_on_push(CONVOLVED, 3))
def test_convolutions_that_see_the_next_token_are_found(inspect_file, name):
    use, loss, expected = CONVOLVED[name]
    findings, text = found(inspect_file, use, loss)
    assert [one.location.line for one in findings] == lines(text, "mixes") * expected


AFTER_THE_NEXT = "F.cross_entropy(logits.flatten(0, 1), following.roll(-1, 1).flatten())"


@pytest.mark.parametrize(
    ("use", "loss", "expected"),
    [
        (BLIND["fused"], AFTER_THE_NEXT, 1),
        (BLIND["one direction"], AFTER_THE_NEXT, 1),
        (SEEING["fused"], AFTER_THE_NEXT, 0),
        (BLIND["fused"], f"{AFTER_THE_NEXT} + {NEXT}", 0),  # predicts both
    ],
)
def test_a_model_that_hides_what_follows_predicts_the_next_token(inspect_file, use, loss, expected):
    text = MODEL.replace("USE", use).replace("LOSS", loss)
    findings = inspect_file(text).findings
    assert len([one for one in findings if one.rule == "GS709"]) == expected
    assert not [one for one in findings if one.rule == "GS730"]


HEALTHY = {
    "tokens that are restored at their place": (SEEING["layer"], OWN),
    "another task": (SEEING["layer"], "F.cross_entropy(logits.transpose(1, 2), ids % 7)"),
    "what an encoder pools": (
        "self.gru(x)[0] + self.widen(self.squeeze(self.layer(x).mean(1)))[:, None]",
        NEXT,
    ),
    "the state at the end of both directions": (
        "self.gru(x)[0] + self.widen(self.squeeze("
        "self.lstm(x)[1][0].transpose(0, 1).flatten(1)))[:, None]",
        NEXT,
    ),
    "an encoder of the same text": (
        "self.layer(self.other(ids), src_mask=hidden) + self.layer(x)",
        NEXT,
    ),
    "a mask of the loss": (
        SEEING["layer"],
        "F.cross_entropy(logits.flatten(0, 1), "
        "following.masked_fill(torch.arange(12) < 11, -100).flatten())",
    ),
    "another model's attention": (
        "self.layer(x, src_mask=hidden)",
        NEXT + " + F.mse_loss(self.layer(x), torch.zeros(16, 12, 16))",
    ),
}


@pytest.mark.parametrize("case", HEALTHY.values(), ids=HEALTHY)
def test_models_that_may_look_ahead_are_fine(inspect_file, case):
    assert not found(inspect_file, *case)[0]


@pytest.mark.parametrize(
    "loss",
    [
        "F.cross_entropy(logits[:, 1:].flatten(0, 1), following[:, 1:].flatten())",
        "F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())",
    ],
)
def test_next_tokens_without_the_first_or_the_last_output_are_fine(inspect_file, loss):
    text = MODEL.replace("USE", BLIND["by hand"]).replace("LOSS", loss)
    assert not {"GS709", "GS730"} & {one.rule for one in inspect_file(text).findings}
