"""Fixes of recorded trainings: the edits are right, and the finding is gone in the next run."""

import json
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.nightly import some_on_push

SAMPLES = Path(__file__).parents[2] / "sample_models"

CHANGED = {
    "missing_zero_grad": ["+optimizer.zero_grad()"],
    "gradient_erased_before_step": [
        "+optimizer.zero_grad()  # GS302",
        "-optimizer.zero_grad()  # GS302",
    ],
    "loss_history_kept": [
        "-total = total + loss  # GS315",
        "+total = total + loss.detach()  # GS315",
    ],
    "growing_graph": [
        "-memory = torch.tanh(embed(features) + 0.9 * memory)  # GS309",
        "+memory = torch.tanh(embed(features) + 0.9 * memory.detach())  # GS309",
    ],
    "unscaled_accumulation": ["-loss.backward()  # GS303", "+(loss / 4).backward()  # GS303"],
    "training_in_eval_mode": ["+model.train()"],
    "partial_clip": [
        "-nn.utils.clip_grad_norm_(model.decoder.parameters(), max_norm=0.05)  # GS404",
        "+nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.05)  # GS404",
    ],
    "clip_inside_accumulation": [
        "-nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)  # GS409",
        "+nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)  # GS409",
    ],
    "scheduler_before_optimizer": ["-scheduler.step()  # GS311", "+scheduler.step()  # GS311"],
    "clip_after_step": [
        "+nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.25)  # GS401",
        "-nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.25)  # GS401",
    ],
    "clip_before_backward": [
        "+loss.backward()",
        "-loss.backward()",
    ],  # seen from the clip, which moves, the same
    "uneven_accumulation": [
        "+target_count = sum((targets != IGNORED).sum() for tokens, targets in batches)",
        "-loss = functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)",
        "-(loss / 4).backward()  # GS304",
        "+loss = functional.cross_entropy("
        'logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")',
        "+(loss / target_count).backward()  # GS304",
    ],
    "clip_before_unscale": ["+scaler.unscale_(optimizer)"],
}
"""The changed lines of each sample's fix, without indentation."""

UNSAFE = {"uneven_accumulation"}
"""Samples whose fix changes more than what is wrong."""


def changed_lines(diff):
    lines = [line for line in diff.split("\n") if line[:1] in ("+", "-")]
    return [line[0] + line[1:].strip() for line in lines if line[:3] not in ("+++", "---")]


@pytest.mark.parametrize("name", some_on_push(CHANGED, {0}))
def test_diff_of_a_recorded_sample_removes_the_finding(name, tmp_path, gradscope_in):
    shutil.copy(SAMPLES / f"{name}.py", tmp_path)
    before = (tmp_path / f"{name}.py").read_bytes()
    gradscope_in(tmp_path, "run", "-q", f"{name}.py")
    options = ["--unsafe-fixes"] if name in UNSAFE else []
    done = gradscope_in(tmp_path, "fix", *options, f"{name}.gradscope")
    assert changed_lines(done.stdout) == CHANGED[name], done.stderr
    assert "not verified: the edited program was not run" in done.stdout
    assert (tmp_path / f"{name}.py").read_bytes() == before
    subprocess.run(["git", "apply", "-"], input=done.stdout.encode(), cwd=tmp_path, check=True)
    done = gradscope_in(tmp_path, "run", "-q", "--save", "after.gradscope", f"{name}.py")
    assert "error[" not in done.stderr and "warning[" not in done.stderr, done.stderr
    done = gradscope_in(tmp_path, "fix", *options, "after.gradscope")
    assert done.stdout.rstrip().endswith("no fix available")


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
o = torch.optim.SGD(net.parameters(), lr=.01)
for i in range(20):
    x = torch.randn(8, 4)
    for part in x.chunk(2):
        net(part).pow(2).mean().backward()
    {body}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    some_on_push(
        [
            ("if True: o.step()", ["-if True: o.step()", "+if True: o.step(); o.zero_grad()"]),
            ("o.step()  # each window", ["+o.zero_grad()"]),
            ("getattr(o, 'step')()", []),
        ],
        {0, 1},
    ),
)
def test_gradients_of_a_window_are_zeroed_behind_the_step(body, expected, tmp_path, gradscope_in):
    (tmp_path / "train.py").write_text(dedent(SCRIPT).format(body=body))
    done = gradscope_in(tmp_path, "run", "-q", "train.py")
    assert "GS301" in done.stderr
    done = gradscope_in(tmp_path, "fix", "train.gradscope", "--fix-only", "GS301")
    assert changed_lines(done.stdout) == expected


def test_a_script_that_changed_since_it_ran_gets_no_edit(tmp_path, gradscope_in):
    (tmp_path / "train.py").write_text(dedent(SCRIPT).format(body="o.step()"))
    gradscope_in(tmp_path, "run", "-q", "train.py")
    (tmp_path / "train.py").write_text("# new\n" + dedent(SCRIPT).format(body="o.step()"))
    done = gradscope_in(tmp_path, "fix", "train.gradscope")
    assert done.stdout.rstrip().endswith("no fix available")


TWO_MODULES = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())
head = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 1))
opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.01)
encoder.eval()
head.eval()
for epoch in range(3):
    for part in range(4):
        opt.zero_grad()
        F.mse_loss(head(encoder(torch.randn(8, 4))), torch.randn(8, 1)).backward()
        opt.step()
"""


def test_two_modules_in_eval_mode_get_an_edit_each(tmp_path, gradscope_in):
    (tmp_path / "train.py").write_text(TWO_MODULES)
    gradscope_in(tmp_path, "run", "-q", "train.py")
    done = gradscope_in(tmp_path, "fix", "train.gradscope", "--fix-only", "GS312")
    assert changed_lines(done.stdout) == ["+encoder.train()", "+head.train()"]
    assert done.stdout.rstrip().endswith("2 fixes, 0 verified")


SCALED = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.**8)
for i in range(30):
    optimizer.zero_grad()
    loss = net(torch.randn(8, 4)).pow(2).mean()
{body}
    scaler.update()
"""


@pytest.mark.parametrize("place", some_on_push(["before", "behind"], 2))
def test_a_clip_is_not_moved_to_where_gradients_are_scaled(place, tmp_path, gradscope_in):
    lines = ["scaler.scale(loss).backward()", "scaler.step(optimizer)"]
    clip = "nn.utils.clip_grad_norm_(net.parameters(), 0.01)"
    lines.insert(0 if place == "before" else 2, clip)
    body = "\n".join(f"    {line}" for line in lines)
    (tmp_path / "train.py").write_text(SCALED.format(body=body))
    done = gradscope_in(tmp_path, "run", "-q", "train.py")
    assert "GS402" in done.stderr or "GS401" in done.stderr
    done = gradscope_in(tmp_path, "fix", "train.gradscope", "--fix-only", "GS4")
    assert done.stdout.rstrip().endswith("no fix available")


REACHING = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=.01)
{body}
for i in range(40):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    torch.save(net.state_dict(), "last.pt")
"""


@pytest.mark.nightly
def test_verification_runs_the_script_twice_in_a_copy(tmp_path, gradscope_in):
    (tmp_path / "train.py").write_text(REACHING.format(body="open('log.txt', 'a').write('x')"))
    gradscope_in(tmp_path, "run", "-q", "train.py")
    for name in ("last.pt", "log.txt"):
        (tmp_path / name).unlink()
    done = gradscope_in(tmp_path, "fix", "train.gradscope", "--verify", "10")
    assert "verified: GS301 gone, loss" in done.stdout, done.stderr
    assert changed_lines(done.stdout) == ["+optimizer.zero_grad()"]
    assert "all 9 steps" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.gradscope", "train.py"]


@pytest.mark.nightly
def test_verified_fixes_of_a_script_are_written(tmp_path, gradscope_in):
    (tmp_path / "train.py").write_text(REACHING.format(body=""))
    gradscope_in(tmp_path, "run", "-q", "train.py")
    form = ("--output-format", "json")
    done = gradscope_in(tmp_path, "fix", "train.gradscope", "--verify", "10", "--fix", *form)
    assert "note: fixed GS301 missing-zero-grad at train.py:10: GS301 gone" in done.stderr
    (fix,) = (one["fix"] for one in json.loads(done.stdout)["findings"] if "fix" in one)
    assert (fix["verified"], fix["edits"][0]["file"]) == (True, "train.py")
    fixed = REACHING.format(body="").replace(
        "    loss.backward()", "    optimizer.zero_grad()\n    loss.backward()"
    )
    assert (tmp_path / "train.py").read_text() == fixed


@pytest.mark.nightly
def test_a_script_that_reaches_outside_the_copy_is_not_run_again(tmp_path, gradscope_in):
    folder, outside = tmp_path / "project", tmp_path / "outside"
    folder.mkdir()
    (folder / "train.py").write_text(REACHING.format(body=""))
    gradscope_in(folder, "run", "-q", "train.py")
    body = f"open({str(outside)!r}, 'w')"
    (folder / "train.py").write_text(REACHING.format(body=body))
    done = gradscope_in(folder, "fix", "train.gradscope", "--verify", "5")
    assert done.returncode == 2 and f"the script writes '{outside}'" in done.stderr
    assert "help: --yes allows it" in done.stderr
    assert not outside.exists()


def test_what_needs_verify_says_so(tmp_path, gradscope_in):
    for option in ("--yes", "--fix"):
        done = gradscope_in(tmp_path, "fix", "train.gradscope", option)
        assert done.returncode == 2 and f"error: {option} needs --verify" in done.stderr
    done = gradscope_in(tmp_path, "fix", "train.gradscope")
    assert done.returncode == 2 and "error: " in done.stderr
