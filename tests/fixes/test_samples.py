"""The samples of rules with a fix: the edit is right, verified, and leaves nothing to fix."""

import json
import shutil
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_models"

CHANGED = {
    "in_place_modification": "+        weights = weights.clone()",
    "loss_broadcast": "+    return ((output.squeeze(-1) - target) ** 2).mean()  # GS702",
    "normalised_twice": "+        return self.head(hidden)  # GS701",
    "unregistered_parameter": (
        "+        self.blocks = nn.ModuleList([Block(24) for _ in range(depth)])  # GS207"
    ),
}
"""The only added line of each sample's fix."""


def fixes_of(done):
    found = json.loads(done.stdout)["findings"]
    return [finding["fix"] for finding in found if "fix" in finding]


@pytest.mark.parametrize("name", CHANGED)
def test_fix_of_a_sample_is_verified_and_final(name, tmp_path, fixing_in):
    shutil.copy(SAMPLES / f"{name}.py", tmp_path)
    done = fixing_in(tmp_path, "check", f"{name}.py", "--diff", "--output-format", "json")
    (fix,) = fixes_of(done)
    assert (fix["verified"], fix["safety"]) == (True, "safe"), fix["verdict"]
    added = [line for line in fix["diff"].split("\n")[2:] if line.startswith("+")]
    assert added == [CHANGED[name]]
    assert fix["after"]["grad_norm"] > 0
    done = fixing_in(tmp_path, "check", f"{name}.py", "--fix")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / f"{name}.py").read_bytes()
    assert CHANGED[name].removeprefix("+").encode() in written
    done = fixing_in(tmp_path, "check", f"{name}.py", "--fix")
    assert done.returncode == 0 and (tmp_path / f"{name}.py").read_bytes() == written
