"""GS329: filters for weight decay that match no norm, and filters that look like them."""

import pytest

from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.ln_1, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(torch.relu(self.ln_1(self.first(x))))

def grouped(model, is_exempt, decay=0.1):
    exempt = [p for n, p in model.named_parameters() if is_exempt(n, p)]
    others = [p for n, p in model.named_parameters() if not is_exempt(n, p)]
    groups = [{"params": others, "weight_decay": decay}, {"params": exempt, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3)

torch.manual_seed(0)
model = Net()
FILTER
for _ in range(4):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).square().mean().backward()
    optimizer.step()
"""

VARIABLE = """
no_decay = WORDS  # words
optimizer = grouped(model, lambda n, p: any(word in n for word in no_decay))
"""
INLINE = """
def is_exempt(name, p):
    return any(part in name for part in WORDS)  # words
optimizer = grouped(model, is_exempt)
"""
DEFAULT = """
def is_exempt(name, p, words=WORDS):  # words
    return any(part in name for part in words)
optimizer = grouped(model, is_exempt)
"""
EITHER = """
def is_exempt(name, p):
    return "bias" in name or "norm" in name  # words
optimizer = grouped(model, is_exempt)
"""
ATTRIBUTE = """
from dataclasses import dataclass, field
@dataclass
class Config:
    lr: float = 1e-3
    no_decay: list[str] = field(default_factory=lambda: WORDS)  # words
config = Config()
optimizer = grouped(model, lambda n, p: any(word in n for word in config.no_decay))
"""
ARGUMENT = """
from types import SimpleNamespace
config = SimpleNamespace(lr=1e-3, no_decay=WORDS)  # words
optimizer = grouped(model, lambda n, p: any(word in n for word in config.no_decay))
"""
KEY = """
config = {"lr": 1e-3, "no_decay": WORDS}  # words
optimizer = grouped(model, lambda n, p: any(word in n for word in config["no_decay"]))
"""
OTHER_SETTING = """
config = {"no_decay": ["bias"], "adapted": WORDS}
optimizer = grouped(model, lambda n, p: any(word in n for word in config["no_decay"]))
"""


def found(tmp_path, text, words='["bias", "LayerNorm.weight"]'):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("FILTER", text).replace("WORDS", words))
    findings = watching.findings_of_script(script, tmp_path)
    return [one for one in findings if one.rule == "GS329"]


@pytest.mark.parametrize("text", [VARIABLE, INLINE, DEFAULT, EITHER, ATTRIBUTE, ARGUMENT, KEY])
def test_a_filter_that_matches_no_norm_is_told_at_its_words(tmp_path, text):
    one = only(found(tmp_path, text), "GS329")
    assert {one.location.line} == marked_lines(tmp_path / "train.py", "# words")
    assert [name.removeprefix("model.") for name in one.parameters] == ["ln_1.weight"]


def test_words_of_another_setting_are_no_finding(tmp_path):
    assert not found(tmp_path, OTHER_SETTING)


def test_a_group_that_stays_empty_is_found_too(tmp_path):
    one = only(found(tmp_path, VARIABLE, '["layer_norm"]'), "GS329")
    assert len(one.parameters) == 2


@pytest.mark.parametrize(
    "words",
    [
        pytest.param('["bias", "ln_"]', id="norms are exempt"),
        pytest.param('["bias", "ln_", "LayerNorm"]', id="a word for another model"),
        pytest.param('["bias"]', id="norms are meant to decay"),
        pytest.param('["bias", "embed"]', id="a word for no norm"),
    ],
)
def test_other_words_are_no_finding(tmp_path, words):
    assert not found(tmp_path, VARIABLE, words)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("grouped(model, lambda n, p: p.ndim < 2)", id="groups by shape"),
        pytest.param("grouped(model, lambda n, p: 'last' in n)", id="groups by another name"),
        pytest.param("torch.optim.AdamW(model.parameters(), lr=1e-3)", id="one group"),
    ],
)
def test_a_filter_that_forms_no_groups_is_no_finding(tmp_path, made):
    text = f"""
target = ["q_proj", "norm_proj"]
adapted = [n for n, _ in model.named_parameters() if any(part in n for part in target)]
optimizer = {made}
"""
    assert not found(tmp_path, text)
