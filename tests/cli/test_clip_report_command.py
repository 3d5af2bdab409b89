"""`gradscope clip-report` from the command line, in this process."""

import json
import os
import sys
from pathlib import Path

import pytest

from gradscope.cli import main
from gradscope.recording.store import load_recording, save_recording
from tests.rules.clipping.clipped_run import healthy_loop

MODEL = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
batch = torch.randn(6, 4), torch.randint(2, (6,))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
SETUP = """
def gradscope_setup():
    return dict(model=model, batch=batch, loss_fn=loss_fn, clip_grad_norm={limit})
"""


@pytest.fixture
def clip_report(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder; gives its exit code, report and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gradscope", "clip-report", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        sys.modules.pop("model", None)
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


def write_model(extra=""):
    Path("model.py").write_text(MODEL + extra)


def save(name, **loop):
    save_recording(healthy_loop(**loop).recording(), Path(name))


def section(out):
    return json.loads(out)["clipping"]["series"][0]


def test_target_is_measured_over_twenty_steps(clip_report):
    write_model()
    code, out, _ = clip_report("model.py", "--output-format", "json")
    assert code == 0
    found = section(out)
    assert (found["measured"], found["is_advised"]) == (21, True)
    assert found["optimizer"]["title"] == "SGD(lr=0.1)"


def test_options_are_what_is_clipped_to(clip_report):
    write_model()
    code, out, _ = clip_report(
        "model.py", "--max-norm", "0.25", "--norm-type", "inf", "--clip-value", "0.125",
        "--agc", "0.5", "--batches", "3", "--steps", "2", "--output-format", "json",
    )  # fmt: skip
    assert code == 0
    trial = json.loads(out)["clipping"]["trial"]
    assert trial == {
        "max_norm": 0.25, "norm_type": "Infinity", "clip_value": 0.125, "agc": 0.5,
        "asked": ["norm", "value", "adaptive"], "applied": "norm", "steps": 2, "batches": 3,
    }  # fmt: skip
    assert section(out)["measured"] == 5


def test_batches_alone_make_no_step(clip_report):
    write_model()
    _, out, _ = clip_report("model.py", "--batches", "4", "--output-format", "json")
    assert (section(out)["measured"], json.loads(out)["clipping"]["trial"]["steps"]) == (4, 0)


def test_limit_of_the_setup_is_taken(clip_report):
    write_model(SETUP.format(limit=0.75))
    arguments = ("model.py", "--steps", "1", "--output-format", "json")
    assert section(clip_report(*arguments)[1])["limit"] == 0.75
    assert section(clip_report(*arguments, "--max-norm", "auto")[1])["is_advised"]
    assert section(clip_report(*arguments, "--max-norm", "2")[1])["limit"] == 2
    assert section(clip_report(*arguments, "--clip-value", "2")[1])["method"] == "value"


def test_limit_of_the_setup_has_to_be_one(clip_report):
    write_model(SETUP.format(limit=0))
    code, out, err = clip_report("model.py")
    assert (code, out) == (2, "")
    assert "`clip_grad_norm` of the setup is 0, expected a number above zero" in err


def test_recording_that_was_saved_tells_the_same_without_torch(clip_report):
    write_model()
    arguments = ("--steps", "3", "--output-format", "json")
    _, out, err = clip_report("model.py", "--save", "a.gradscope", *arguments)
    assert "wrote a.gradscope" in err
    _, again, _ = clip_report("a.gradscope", "--output-format", "json")
    assert json.loads(again) == json.loads(out)


def test_recording_of_a_run_tells_what_its_clips_did(clip_report):
    save("run.gradscope", steps=40, max_norm=0.02)
    code, out, _ = clip_report("run.gradscope")
    assert code == 0
    assert "warning[GS405] always-clipped" in out
    assert "40 of 40 steps (100 %)" in out


def test_several_recordings_are_several_reports(clip_report):
    save("a.gradscope")
    save("b.gradscope", max_norm=3.0)
    code, out, _ = clip_report("a.gradscope", "b.gradscope")
    assert (code, out.count("gradscope clip-report ")) == (0, 2)
    code, _, err = clip_report("a.gradscope", "b.gradscope", "--output-format", "json")
    assert code == 2
    assert "jsonl" in err


def test_newest_recording_is_taken_where_nothing_is_named(clip_report):
    save("old.gradscope")
    save("new.gradscope", max_norm=0.25)
    os.utime("old.gradscope", (1, 1))
    code, out, err = clip_report()
    assert code == 0
    assert "clipping of `new.gradscope`, the newest recording here" in err
    assert "clip_grad_norm_(max_norm=0.25)" in out


def test_configured_target_is_taken_first(clip_report):
    save("new.gradscope")
    write_model()
    Path("pyproject.toml").write_text('[tool.gradscope.targets]\nsmall = "model.py"\n')
    code, out, err = clip_report("--steps", "1")
    assert code == 0
    assert "clipping of `small`, the configured target" in err
    assert "gradscope clip-report model.py" in out


def test_one_of_several_configured_targets_has_to_be_named(clip_report):
    Path("pyproject.toml").write_text(
        '[tool.gradscope.targets]\nsmall = "model.py"\nlarge = "model.py:model"\n'
    )
    code, _, err = clip_report()
    assert code == 2
    assert "2 targets are configured: small, large" in err


def test_nothing_to_report_on_is_told_in_a_line(clip_report):
    code, out, err = clip_report()
    assert (code, out) == (2, "")
    assert "no recording here" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-norm", "0"], "--max-norm '0' is not a number above zero, or auto"),
        (["--max-norm", "nan"], "is not a number above zero"),
        (["--max-norm", "ten"], "is not a number above zero"),
        (["--norm-type", "-2"], "--norm-type '-2' is not a number above zero, or inf"),
        (["--clip-value", "-1"], "--clip-value -1.0 is not a number above zero"),
        (["--agc", "0"], "--agc 0.0 is not a number above zero"),
        (["--per-layer"], "--per-layer needs a limit"),
    ],
)
def test_wrong_limits_are_told_in_a_line(clip_report, arguments, words):
    code, out, err = clip_report("model.py", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_target_and_recording_do_not_go_together(clip_report):
    save("a.gradscope")
    write_model()
    assert clip_report("model.py", "a.gradscope")[0] == 2
    assert clip_report("model.py", "other.py")[0] == 2


def test_recording_that_is_there_is_not_saved_again(clip_report):
    save("a.gradscope")
    code, _, err = clip_report("a.gradscope", "--save", "b.gradscope")
    assert code == 2
    assert "the recordings are already saved" in err


def test_recording_of_a_step_tells_that_it_holds_no_clip(clip_report):
    write_model()
    save("a.gradscope", steps=0)
    assert not load_recording(Path("a.gradscope")).steps
    code, _, err = clip_report("a.gradscope")
    assert code == 2
    assert "has no clip call" in err


def test_other_rules_than_those_on_clipping_are_left_out_unless_asked_for(clip_report):
    save("a.gradscope", steps=40, max_norm=0.02)
    _, out, _ = clip_report("a.gradscope", "--output-format", "json")
    assert {code for code in json.loads(out)["rules"]["ran"] if not code.startswith("GS4")} <= {
        "GS101", "GS103", "GS107",
    }  # fmt: skip
    _, out, _ = clip_report("a.gradscope", "--select", "GS3", "--output-format", "json")
    assert all(code.startswith("GS3") for code in json.loads(out)["rules"]["ran"])


def test_cause_of_a_finding_on_clipping_is_named_and_not_its_symptom(clip_report):
    """Alone, the rules on clipping would take the gradient for the cause, and not the forward."""
    sample = str(Path(__file__).parents[2] / "sample_models" / "non_finite_forward.py")
    arguments = (sample, "--batches", 1, "--output-format", "json")
    _, out, _ = clip_report(*arguments, "--select", "GS1")
    assert "GS104" in {one["rule"] for one in json.loads(out)["findings"]}
    _, out, _ = clip_report(*arguments, "--select", "GS103")
    assert [one["rule"] for one in json.loads(out)["findings"]] == ["GS103"]
    _, out, _ = clip_report(*arguments)
    (finding,) = json.loads(out)["findings"]
    assert finding["rule"] == "GS104"
    assert [one["rule"] for one in finding["consequences"]] == ["GS103"]


def test_backward_that_raises_is_told_once(clip_report):
    write_model("\n\ndef loss_fn(output, target):\n    return output.detach().sum()\n")
    code, out, err = clip_report("model.py")
    assert (code, out) == (2, "")
    assert err.count("error: ") == 1
    assert "has no grad_fn" in err


def test_steps_up_to_one_that_raises_are_told(clip_report):
    write_model(
        "\n\ncalls = []\n\n\ndef loss_fn(output, target):\n"
        "    calls.append(1)\n"
        "    loss = nn.functional.cross_entropy(output, target)\n"
        "    return loss if len(calls) < 4 else loss.detach()\n"
    )
    code, out, _ = clip_report("model.py")
    assert code == 2
    assert "3 gradients: before each of 2 steps of the 20 asked for" in out
