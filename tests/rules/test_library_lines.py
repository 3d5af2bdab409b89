"""Findings in an installed package point to the user's line that called it."""

import sys
from pathlib import Path

import pytest

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


CLASSIFIER = """
import torch
from torch import nn


def unused_freeze(layer):
    layer.weight.requires_grad = False


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.pool = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        return self.pool(self.second(self.first(x).relu()).relu()).tanh()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.score = Encoder(), nn.Linear(6, 2)

    def forward(self, x):
        return self.score(self.encoder(x))
"""

FINE_TUNING = """
import torch
from thirdparty import Classifier

torch.manual_seed(1)
model = Classifier()
state = {{name: value.clone() for name, value in model.{loaded}state_dict().items()}}
model.{loaded}load_state_dict(state)
for name, parameter in model.named_parameters():
    if not any(part in name for part in {learning}):
        parameter.requires_grad = False
adam = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=1e-2)
for _ in range(6):
    output = model(torch.randn(8, 6))
    loss = (output - 1).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def run_on(library, text, folder, monkeypatch, code):
    """Run a script that imports an installed library, and return what a rule finds."""
    installed = folder / "site-packages"
    installed.mkdir()
    (installed / "thirdparty.py").write_text(library)
    script = folder / "train.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(installed)!r})\n{text}")
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = findings_of_script(script, folder)
    sys.modules.pop("thirdparty", None)
    return [one for one in found if one.rule == code]


def test_a_cut_in_a_library_points_to_the_call_of_its_model(tmp_path, monkeypatch):
    (found,) = run_on(LIBRARY, SCRIPT, tmp_path, monkeypatch, "GS201")
    assert (Path(found.location.file).name, found.location.source) == (
        "train.py",
        "output = model(torch.randn(8, 6))",
    )
    assert ("thirdparty.py", 13) in {(Path(one.file).name, one.line) for one in found.related}


def fine_tuned(folder, monkeypatch, *, loaded="encoder.", learning=("pool",)):
    text = FINE_TUNING.format(loaded=loaded, learning=learning)
    return run_on(CLASSIFIER, text, folder, monkeypatch, "GS214")


def test_a_script_that_freezes_the_new_head_of_a_librarys_model_is_named(tmp_path, monkeypatch):
    (found,) = fine_tuned(tmp_path, monkeypatch)
    assert found.location.source == "parameter.requires_grad = False"
    assert Path(found.location.file).name == "train.py"
    assert found.parameters == ("model.score.weight", "model.score.bias")


@pytest.mark.parametrize(
    "variant",
    [{"loaded": ""}, {"learning": ("pool", "score")}],
    ids=["a head that was loaded too", "a head that learns"],
)
def test_other_heads_of_a_librarys_model_are_fine(variant, tmp_path, monkeypatch):
    assert not fine_tuned(tmp_path, monkeypatch, **variant)
