import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import gradscope
from gradscope.capture.errors import is_own_fault
from gradscope.capture.statistics import Measurer
from gradscope.capture.step.measurements import GradientCollector

ROOT = Path(__file__).parents[3]

WHOLE_STEPS = """
import torch
from torch import nn

{prepare}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

@torch.compile(backend="{backend}")
def train(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss

for _ in range(4):
    print(train(torch.randn(16, 4)).item())
print([p.detach().double().sum().item() for p in model.parameters()])
from torch._dynamo.convert_frame import input_codes
from torch._dynamo.utils import counters
print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
codes = [code for reference in input_codes.seen if (code := reference()) is not None]
print([code.co_name for code in codes if "/gradscope/" in code.co_filename])
"""

MADE_INSIDE = """
import torch
from torch import nn

@torch.compile(backend="eager")
def made(x):
    layer = nn.Linear(4, 4)
    nn.init.ones_(layer.weight)
    return layer.eval()(x).sum()

print(made(torch.ones(2, 4)).item() is not None)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("prepare", "backend"),
    [
        ("", "eager"),
        pytest.param(
            "import torch._dynamo; torch._dynamo.config.compiled_autograd = True",
            "aot_eager",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["whole steps", "compiled autograd"],
)
def test_a_compiled_script_computes_and_compiles_the_same(tmp_path, gradscope_in, prepare, backend):
    (tmp_path / "train.py").write_text(WHOLE_STEPS.format(prepare=prepare, backend=backend))
    arguments = ("run", "-q", "-o", "report.txt", "train.py")
    plain = gradscope_in(tmp_path, *arguments, GRADSCOPE="off")
    watched = gradscope_in(tmp_path, *arguments)
    assert watched.stdout == plain.stdout
    assert plain.stdout.endswith("[]\n")
    assert (tmp_path / "report.txt").exists()


@pytest.mark.nightly
def test_a_module_made_in_compiled_code_says_nothing(tmp_path):
    (tmp_path / "train.py").write_text(MADE_INSIDE)
    # In a process of its own: what it says while the interpreter ends counts.
    done = subprocess.run(
        [sys.executable, "-m", "gradscope", "run", "-q", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TORCH_LOGS": "-dynamo"},
        check=False,
    )
    assert done.stdout == "True\n"
    assert "Exception ignored" not in done.stderr
    assert "StorageWeakRef" not in done.stderr


@pytest.mark.filterwarnings("ignore")
def test_gradients_may_be_zeroed_in_compiled_code():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def train(x):
        model(x).sum().backward()
        optimizer.zero_grad()
        model.zero_grad()

    with gradscope.watch():
        for _ in range(2):
            train(torch.ones(2, 3))
    assert model.weight.grad is None
    assert not [reason for reason in counters["graph_break"] if "_getframe" in reason]


def test_hooks_are_gone_before_a_model_is_explained(recwarn):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    with gradscope.watch():
        torch.optim.SGD(model.parameters(), lr=0.1)
        explained = torch._dynamo.explain(model)(torch.ones(2, 3))
    assert explained.graph_break_count == 0
    assert not [one for one in recwarn if "global hooks" in str(one.message)]


def test_the_compiler_is_not_imported_for_a_script_that_does_without(tmp_path):
    script = """
import sys, torch, gradscope
from gradscope.probes.forward.operations import OperationMode
weight = torch.ones(3, requires_grad=True)
with gradscope.watch():
    for _ in range(3):
        weight.square().sum().backward()
        weight.data -= 0.1 * weight.grad
        weight.grad = None
with OperationMode():
    weight + 1
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout == "False\n"


def trained(steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_fault_in_a_hook_does_not_end_the_training(monkeypatch):
    plain = trained()

    def broken(*_: object) -> None:
        raise RuntimeError("a fault of gradscope's")

    with monkeypatch.context() as patched:
        patched.setattr(Measurer, "add", broken)
        with gradscope.watch() as watch:
            assert trained() == plain
    report = watch.report()
    assert not [one for one in report.findings if one.rule.startswith("GS5")]
    assert any("a fault of gradscope's" in one.reason for one in report.skipped)


def test_what_gradscope_raises_is_no_finding(monkeypatch):
    measured = GradientCollector._arrive.__code__

    def arrive(self, number, gradients):
        raise KeyError("of gradscope's own")

    own = arrive.__code__.replace(co_filename=measured.co_filename)
    arrive.__code__ = own
    monkeypatch.setattr(GradientCollector, "_arrive", arrive)
    raised = None
    try:
        with gradscope.watch() as watch:
            trained()
    except KeyError as error:
        raised = error
    assert raised is not None
    assert is_own_fault(raised)
    report = watch.report()
    assert not [one for one in report.findings if one.rule.startswith("GS5")]


def test_what_a_hook_of_the_users_raises_is_theirs():
    model = nn.Linear(3, 1)

    def hook(gradient):
        raise ValueError("the user's")

    raised = None
    try:
        with gradscope.watch() as watch:
            model.weight.register_hook(hook)
            model(torch.ones(2, 3)).sum().backward()
    except ValueError as error:
        raised = error
    assert raised is not None
    assert not is_own_fault(raised)
    assert [one.rule for one in watch.report().findings] == ["GS506"]
