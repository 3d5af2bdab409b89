"""The samples of rules with a fix: the edit is right, verified, and leaves nothing to fix."""

import json
import shutil
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_models"

CHANGED = {
    "gradient_cut": "+        code = self.encoder(noisy)  # GS201",
    "in_place_modification": "+        weights = weights.clone()",
    "loss_broadcast": "+    return ((output.squeeze(-1) - target) ** 2).mean()  # GS702",
    "normalised_twice": "+        return self.head(hidden)  # GS701",
    "unregistered_parameter": (
        "+        self.blocks = nn.ModuleList([Block(24) for _ in range(depth)])  # GS207"
    ),
}
"""The only added line of each sample's fix."""

UNSAFE = ("gradient_cut",)
"""Samples whose fix is unsafe."""


def fixes_of(done):
    found = json.loads(done.stdout)["findings"]
    return [finding["fix"] for finding in found if "fix" in finding]


@pytest.mark.parametrize("name", CHANGED)
def test_fix_of_a_sample_is_verified_and_final(name, tmp_path, gradscope_in):
    shutil.copy(SAMPLES / f"{name}.py", tmp_path)
    written = ["--unsafe-fixes"] if name in UNSAFE else []
    form = ("--output-format", "json")
    done = gradscope_in(tmp_path, "check", f"{name}.py", "--diff", *written, *form)
    (fix,) = fixes_of(done)
    safety = "unsafe" if name in UNSAFE else "safe"
    assert (fix["verified"], fix["safety"]) == (True, safety), fix["verdict"]
    added = [line for line in fix["diff"].split("\n")[2:] if line.startswith("+")]
    assert added == [CHANGED[name]]
    assert fix["after"]["grad_norm"] > 0
    done = gradscope_in(tmp_path, "check", f"{name}.py", "--fix", *written)
    assert done.returncode == 0, done.stderr
    content = (tmp_path / f"{name}.py").read_bytes()
    assert CHANGED[name].removeprefix("+").encode() in content
    done = gradscope_in(tmp_path, "check", f"{name}.py", "--fix", *written)
    assert done.returncode == 0 and (tmp_path / f"{name}.py").read_bytes() == content


def test_unsafe_fixes_are_only_counted_unless_asked_for(tmp_path, gradscope_in):
    shutil.copy(SAMPLES / "gradient_cut.py", tmp_path)
    done = gradscope_in(tmp_path, "check", "gradient_cut.py", "--diff")
    assert done.stdout.rstrip().endswith("no fix available; 1 more with --unsafe-fixes")
    done = gradscope_in(tmp_path, "check", "gradient_cut.py", "--fix")
    assert done.returncode == 1
    text = (SAMPLES / "gradient_cut.py").read_bytes()
    assert (tmp_path / "gradient_cut.py").read_bytes() == text
