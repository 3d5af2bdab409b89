"""GS125: reads of the last position of padded sequences, and of the last token."""

import pytest

from tests.rules import watching
from tests.rules.inspecting import marked_lines

SCRIPT = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

LENGTH = 20


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8, padding_idx=PADDING)
        self.layer = LAYER
        self.out = nn.Linear(8, 2)

    def forward(self, tokens, lengths):
        x = self.embed(tokens)
        rows = torch.arange(len(tokens))
        READ
        return self.out(state)


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(5):
    tokens = torch.randint(1, 30, (16, LENGTH))
    lengths = torch.randint(3, LENGTH - 1, (16,))
    PAD
    loss = nn.functional.cross_entropy(model(tokens, lengths), (lengths > 9).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

GRU = "nn.GRU(8, 8, batch_first=True)"
LSTM = "nn.LSTM(8, 8, batch_first=True)"
TRANSFORMER = "nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)"
AT_END = "tokens[torch.arange(LENGTH) >= lengths[:, None]] = 0"
AT_START = "tokens[torch.arange(LENGTH) < LENGTH - lengths[:, None]] = 0"
PACKED = "pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)"


def told(tmp_path, layer, read, pad=AT_END, padding="0"):
    script = tmp_path / "train.py"
    text = SCRIPT.replace("LAYER", layer).replace("READ", read).replace("PAD\n", pad + "\n")
    script.write_text(text.replace("PADDING", padding))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS125"]
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
    return found


SICK = {
    "last output": (GRU, "state = self.layer(x)[0][:, -1]  # here"),
    "last output by number": (LSTM, "state = self.layer(x)[0][:, LENGTH - 1, :]  # here"),
    "first and last output": (
        GRU,
        "output = self.layer(x)[0]\n        state = output[:, 0] + output[:, -1]  # here",
    ),
    "final state": (GRU, "state = self.layer(x)[1][-1]  # here"),
    "final state of an LSTM": (LSTM, "state = self.layer(x)[1][0][0]  # here"),
    "positions first": (
        "nn.GRU(8, 8)",
        "state = self.layer(x.transpose(0, 1))[0][-1]  # here",
    ),
    "a transformer": (TRANSFORMER, "state = self.layer(x)[:, -1]  # here"),
    "unpacked again": (
        GRU,
        f"output = self.layer({PACKED})[0]\n"
        "        state = pad_packed_sequence(output, batch_first=True, "
        "total_length=LENGTH)[0][:, -1]  # here",
    ),
}


@pytest.mark.parametrize(("layer", "read"), SICK.values(), ids=SICK)
def test_a_read_behind_padding_is_a_warning(tmp_path, layer, read):
    assert [one.severity for one in told(tmp_path, layer, read)] == ["warning"]


def test_a_little_padding_is_a_note(tmp_path):
    pad = "lengths = torch.randint(17, 20, (16,)); " + AT_END
    (found,) = told(tmp_path, GRU, "state = self.layer(x)[0][:, -1]  # here", pad)
    assert found.severity == "note"
    assert 0 < dict(found.evidence)["share_of_padding"] < 0.25


LAST = "state = self.layer(x)[0][:, -1]"

HEALTHY = {
    "last token": (GRU, "state = self.layer(x)[0][rows, lengths - 1]", AT_END, "0"),
    "packed": (GRU, f"state = self.layer({PACKED})[1][-1]", AT_END, "0"),
    "first token": (TRANSFORMER, "state = self.layer(x)[:, 0]", AT_END, "0"),
    "padding at the start": (GRU, LAST, AT_START, "0"),
    "no padding": (GRU, LAST, "pass", "0"),
    "a usual token": (GRU, LAST, AT_END, "None"),
    "one sequence in four": (GRU, LAST, "tokens[::4, 9:] = 0", "0"),
    "each position in turn": (
        GRU,
        "outputs = self.layer(x)[0]\n        state = torch.zeros(len(tokens), 8)\n"
        "        for time in range(LENGTH):\n"
        "            state = torch.tanh(0.5 * state + outputs[:, time])",
        AT_END,
        "0",
    ),
    "each position backwards": (
        GRU,
        "outputs = self.layer(x)[0]\n        state = torch.zeros(len(tokens), 8)\n"
        "        for time in reversed(range(LENGTH)):\n"
        "            state = torch.tanh(0.5 * state + outputs[:, time])",
        AT_END,
        "0",
    ),
    "a part": (GRU, "state = self.layer(x)[0][:, 2:5].mean(1)", AT_END, "0"),
}


@pytest.mark.parametrize(("layer", "read", "pad", "padding"), HEALTHY.values(), ids=HEALTHY)
def test_other_reads_are_fine(tmp_path, layer, read, pad, padding):
    assert not told(tmp_path, layer, read, pad, padding)
