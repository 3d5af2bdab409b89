"""The samples of rules with a fix: the edit is right, verified, and leaves nothing to fix."""

import json
import shutil
from pathlib import Path

import pytest

from tests.fixes.in_process import fixes_of
from tests.nightly import some_on_push

SAMPLES = Path(__file__).parents[2] / "sample_models"

CHANGED = {
    "backward_twice": "+    nn.functional.mse_loss(values, returns).backward(retain_graph=True)",
    "duplicate_in_optimizer": "+    parameters = list(model.parameters())",
    "gradient_cut": "+        code = self.encoder(noisy)  # GS201",
    "in_place_modification": "+        weights = weights.clone()",
    "loss_broadcast": "+    return ((output.squeeze(-1) - target) ** 2).mean()  # GS702",
    "non_finite_gradient": "+        return torch.sqrt(squared + 1e-8)  # GS103",
    "normalised_twice": "+        return self.head(hidden)  # GS701",
    "unregistered_parameter": (
        "+        self.blocks = nn.ModuleList([Block(24) for _ in range(depth)])  # GS207"
    ),
}
"""The only added line of each sample's fix."""

UNSAFE = ("gradient_cut",)
"""Samples whose fix is unsafe."""


def fixes_in(done):
    found = json.loads(done.stdout)["findings"]
    return [finding["fix"] for finding in found if "fix" in finding]


@pytest.mark.parametrize("name", some_on_push(CHANGED, {0}))
def test_fix_of_a_sample_is_verified_and_final(name, tmp_path, gradscope_in):
    shutil.copy(SAMPLES / f"{name}.py", tmp_path)
    written = ["--unsafe-fixes"] if name in UNSAFE else []
    form = ("--output-format", "json")
    done = gradscope_in(tmp_path, "check", f"{name}.py", "--diff", *written, *form)
    (fix,) = fixes_in(done)
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


SEARCHED = {
    "exploding_gradient": ("GS101", ["nn.init.kaiming_normal_(layer.weight)  # GS101"]),
    "gradient_underflow": ("GS601", ["return 262144.0 * loss  # GS601"]),
    "parameter_not_in_optimizer": ("GS205", ["model.project_query = nn.Linear(32, 32)"]),
    "stale_optimizer_parameter": ("GS206", ["model.classifier = nn.Linear(32, 3)  # GS206"]),
    "vanishing_gradient": (
        "GS102",
        [
            "for layer in self.hidden:",
            "nn.init.xavier_normal_(layer.weight)",
            "x = torch.tanh(layer(x))  # GS102",
        ],
    ),
}
"""Rule and added lines of each sample's unsafe fix."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", some_on_push(SEARCHED, {0}))
def test_unsafe_fix_of_a_sample_is_verified_and_final(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{name}.py"
    shutil.copy(SAMPLES / f"{name}.py", path)
    rule, added = SEARCHED[name]
    _, (fix,) = fixes_of(path, rule)
    assert (fix.is_verified, fix.safety, list(fix.added)) == (True, "unsafe", added), fix.verdict
    path.write_text(fix.texts[str(path)])
    _, fixes = fixes_of(path, rule)
    assert fixes == []


@pytest.mark.nightly
def test_the_best_of_several_candidates_is_shown_with_the_numbers_of_the_others(
    tmp_path, gradscope_in
):
    shutil.copy(SAMPLES / "update_too_large.py", tmp_path)
    done = gradscope_in(tmp_path, "check", "update_too_large.py", "--diff", "--unsafe-fixes")
    (verdict,) = (line for line in done.stdout.splitlines() if line.startswith("unsafe, verified"))
    best, *others = verdict.split("; ")
    assert "GS108 gone" in best and best.endswith(" in 3 steps")
    optimizer = "`return torch.optim.SGD(model.parameters(), lr={})`"
    assert others[0].startswith(f"tried {optimizer.format('1.0')}: GS108 stays at")
    lost = float(best.partition(" -> ")[2].rpartition(" -> ")[2].split()[0])
    rest = [one.partition(": loss ")[2] for one in others[1:]]
    assert len(rest) == 2 and all(float(one) > lost for one in rest)


def test_unsafe_fixes_are_only_counted_unless_asked_for(tmp_path, gradscope_in):
    shutil.copy(SAMPLES / "gradient_cut.py", tmp_path)
    done = gradscope_in(tmp_path, "check", "gradient_cut.py", "--diff")
    assert done.stdout.rstrip().endswith("no safe fix; 1 with --unsafe-fixes")
    done = gradscope_in(tmp_path, "check", "gradient_cut.py", "--fix")
    assert done.returncode == 1 and "note: 1 more fix with --unsafe-fixes" in done.stderr
    text = (SAMPLES / "gradient_cut.py").read_bytes()
    assert (tmp_path / "gradient_cut.py").read_bytes() == text
