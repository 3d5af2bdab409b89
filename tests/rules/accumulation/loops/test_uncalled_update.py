"""GS328: copies of a network that a function would update, and that nothing calls."""

import ast
import linecache

import pytest

from gradscope.capture.source.target_updates import uncalled_updates
from gradscope.probes import parameter_history
from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

TRAINING = """
import copy
import torch
from torch import nn
from torch.nn import functional


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.target = {copy}
        self.target.requires_grad_(False)

    @torch.no_grad()
    def {name}(self):
        for own, other in zip(self.target.parameters(), self.online.parameters()):
            own.lerp_(other, 0.05)

    def forward(self, x):
        return functional.mse_loss(self.online(x), {used}(0.9 * x))


torch.manual_seed(0)
pair = Pair()
optimizer = torch.optim.SGD(pair.online.parameters(), lr=0.1)
for step in range(8):
    loss = pair(torch.randn(16, 6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
NAME = "_".join(["move", "along"])  # no file of the user's may name it, and this is one
PARTS = {"name": NAME, "copy": "copy.deepcopy(self.online)", "used": "self.target", "after": "pass"}


def told(tmp_path, **parts):
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(**PARTS | parts))
    return [one for one in findings_of_script(script, tmp_path) if one.rule == "GS328"]


def test_a_copy_whose_update_nothing_calls_is_a_warning(tmp_path):
    (found,) = told(tmp_path)
    assert found.severity == "warning"
    assert found.location.source.strip() == f"def {NAME}(self):"
    assert found.related[0].source.strip() == "self.target = copy.deepcopy(self.online)"


FINE = {
    "called": {"after": f"pair.{NAME}()"},
    "called later": {"after": f"if step > 100: pair.{NAME}()"},
    "by name": {"after": f"getattr(pair, '{NAME}' if step > 100 else 'eval')()"},
    "no copy": {"copy": "nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))"},
    "copied anew": {"after": "pair.target.load_state_dict(pair.online.state_dict())"},
    "not used": {"used": "(lambda x: x[:, :4])"},
}


@pytest.mark.parametrize("name", some_on_push(FINE, 3))
def test_other_copies_are_fine(tmp_path, name):
    assert not told(tmp_path, **FINE[name])


UPDATE = """
    for a, b in zip(target.parameters(), model.parameters()):
        {write}
"""
WRITES = ["a.data = 0.9 * a.data + 0.1 * b.data", "a.lerp_(b, 0.1)", "a.data.copy_(b)"]


def names(source, *, is_script=True):
    return [one.name for one in uncalled_updates(ast.parse(source), is_script=is_script)]


@pytest.mark.parametrize("write", WRITES)
def test_loops_that_write_to_one_of_two_networks_are_updates(write):
    source = "def follow(target, model):" + UPDATE.format(write=write)
    assert names(source) == ["follow"]
    assert not names(source, is_script=False)
    assert not names(source + "\nfollow(one, two)")
    assert not names(source + "\nsteps = [follow]")


def test_loops_that_only_read_are_none():
    reads = UPDATE.format(write="total = total + (a - b).square().sum()")
    assert not names("def distance(target, model):" + reads)


def test_a_variable_called_zip_is_no_pair_of_networks():
    assert not names("def visit(zip):\n    for code in zip:\n        code.copy_(1)")


@pytest.mark.parametrize(
    ("base", "is_found"), [("", True), ("(nn.Module)", True), ("(LightningModule)", False)]
)
def test_methods_that_a_library_may_call_are_left_alone(base, is_found):
    body = UPDATE.format(write="a.lerp_(b, 0.1)").replace("\n", "\n    ")
    source = f"class Learner{base}:\n    def on_step(self, target, model):{body}"
    assert bool(names(source, is_script=False)) == is_found


LOOP = "def follow(target, model):" + UPDATE.format(write="a.lerp_(b, 0.1)")


@pytest.mark.parametrize(
    ("method", "called", "expected"),
    [
        ("follow", "pass", ["follow"]),
        ("track", "pass", ["track"]),
        ("follow", "learner.follow()", []),
        ("follow", "follow(learner.one, learner.two)", []),
        ("track", "learner.track()", []),
    ],
)
def test_a_method_may_leave_the_loop_to_a_function(method, called, expected):
    body = f"    def {method}(self):\n        follow(self.target, self.model)"
    source = f"{LOOP}\nclass Learner:\n{body}\n{called}"
    assert names(source, is_script=False) == expected


def test_a_method_that_calls_another_function_is_no_update():
    body = "    def track(self):\n        measure(self.target, self.model)"
    assert not names(f"{LOOP}\nclass Learner:\n{body}", is_script=False)


def test_a_file_is_searched_once_and_again_after_a_change(tmp_path, monkeypatch):
    searched = []
    monkeypatch.setattr(
        parameter_history,
        "uncalled_updates",
        lambda tree, *, is_script: searched.append(is_script) or (),
    )
    file = tmp_path / "networks.py"

    def search():
        linecache.checkcache(str(file))
        parameter_history._updates_in(str(file), is_script=False)

    file.write_text("zip(a.parameters(), b.parameters())\n")
    search()
    search()
    assert searched == [False]
    file.write_text("zip(a.parameters(), b.parameters(), strict=True)\n")
    search()
    assert searched == [False, False]
    file.write_text("nothing = 1\n")
    search()
    assert searched == [False, False]
