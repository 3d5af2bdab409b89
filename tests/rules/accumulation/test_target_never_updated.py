"""GS331, judged from trainings with target networks, and from copies that are meant to stay."""

import ast

import pytest

from gradscope.capture.source import target_updates
from gradscope.capture.source.target_updates import unread_rates
from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script


@pytest.fixture(autouse=True)
def without_files_of_the_suite(monkeypatch):
    """Hide the modules of the suite: they are files of the user, too, and some copy states."""
    monkeypatch.setattr(target_updates, "_users_files", lambda: ())


TRAINING = """
import copy
import torch
from torch import nn
from torch.nn import functional


def average(source, target):
    for one, other in zip(source.parameters(), target.parameters()):
        other.data.mul_(0.9).add_(0.1 * one.data)


torch.manual_seed(0)
online = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
target = {made}
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range({steps}):
    state, action = torch.randn(32, 6), torch.randint(4, (32, 1))
    following = state + 0.1 * torch.randn(32, 6)
    reward = following[:, :1] - action
    {wanted}
    prediction = online(state).gather(1, action)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
PARTS = {
    "made": "copy.deepcopy(online)",
    "steps": 50,
    "wanted": "wanted = reward + 0.9 * target(following).max(1, keepdim=True).values.detach()",
    "loss": "functional.mse_loss(prediction, wanted)",
    "after": "pass",
}


def told(tmp_path, **parts):
    script = tmp_path / "train.py"
    source = TRAINING.format(**PARTS | parts)
    if "average(" not in parts.get("after", ""):
        source = source[: source.index("def average")] + source[source.index("torch.manual") :]
    script.write_text(source)
    return [one for one in findings_of_script(script, tmp_path) if one.rule == "GS331"]


def test_a_target_that_never_changes_is_a_warning(tmp_path):
    (found,) = told(tmp_path)
    assert found.severity == "warning"
    assert found.location.source.startswith("wanted = reward")
    assert "which has not changed in" in found.message
    assert dict(found.evidence)["steps"] >= 30


WAYS = {
    "no_grad": {
        "wanted": (
            "with torch.no_grad(): best = online(following).argmax(1, keepdim=True); "
            "wanted = target(following).gather(1, best) * 0.9 + reward"
        )
    },
    "difference": {"loss": "(prediction - wanted).square().mean()"},
    "other weights": {
        "made": "nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))",
    },
}


@pytest.mark.parametrize("way", some_on_push(WAYS, {"no_grad"}))
def test_the_way_of_the_target_does_not_matter(way, tmp_path):
    (found,) = told(tmp_path, **WAYS[way])
    assert found.severity == "warning"


def test_a_run_that_ends_early_is_not_judged(tmp_path):
    assert not told(tmp_path, steps=25)


HEALTHY = {
    "averaged": {"after": "average(online, target)"},
    "synchronised": {
        "after": "if step % 20 == 0: target.load_state_dict(online.state_dict())",
    },
    "distilled": {
        "wanted": "wanted = target(state).gather(1, action).detach()",
        "made": "nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))",
    },
    "step of a teacher": {
        "wanted": "wanted = state + 0.1 * nn.functional.pad(target(state), (0, 2)).detach()",
        "loss": "functional.mse_loss(nn.functional.pad(online(state), (0, 2)), wanted)",
    },
}


@pytest.mark.parametrize("way", some_on_push(HEALTHY, {"synchronised", "step of a teacher"}))
def test_updated_targets_and_teachers_are_fine(way, tmp_path):
    assert not told(tmp_path, **HEALTHY[way])


def test_an_update_that_may_come_later_is_a_note(tmp_path):
    after = "if step and step % 10_000 == 0: target.load_state_dict(online.state_dict())"
    (found,) = told(tmp_path, after=after)
    assert found.severity == "note"


def test_a_target_that_is_the_network_is_a_warning(tmp_path):
    (found,) = told(tmp_path, made="online")
    assert found.severity == "warning"
    assert found.location.source == "target = online"


def test_a_network_without_a_target_is_fine(tmp_path):
    wanted = PARTS["wanted"].replace("target", "online")
    assert not told(tmp_path, made="None", wanted=wanted)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("TAU = 0.1", ["TAU"]),
        ("TAU = 0.1\nprint(TAU)", []),
        ("self.m = m", ["m"]),
        ("self.m = m\nx = self.m", []),
        ("parser.add_argument('--target-update', type=int)", ["target_update"]),
        ("parser.add_argument('--target-update')\nargs.target_update", []),
        ("momentum = 0.9\ngetattr(one, 'momentum')", []),
        ("rate = 0.1", []),
        ("momentum = 0.9", []),
        ("self.momentum = 0.9", ["momentum"]),
    ],
)
def test_rates_that_nothing_reads(source, names):
    assert [name for _, name in unread_rates(ast.parse(source))] == names
