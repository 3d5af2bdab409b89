"""`GRADSCOPE=off` and `--no-tensors` turn recording off."""

import sys

from gradscope import watch

SCRIPT = """
    import sys
    print(sys.argv, __name__, "torch" in sys.modules)
    sys.exit(3)
"""
TRAINING = """
    import sys
    import torch
    from torch import nn
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    file = nn.init.zeros_.__code__.co_filename
    print(torch._C._len_torch_function_stack(), file.count("gradscope/capture"))
"""


def test_off_runs_a_script_as_python_does(start, gradscope, write, tmp_path):
    write("train.py", SCRIPT)
    plain = start("train.py", "--lr", "1")
    done = gradscope("run", "--every", "3", "train.py", "--lr", "1", GRADSCOPE="off")
    assert (done.returncode, done.stdout, done.stderr) == (3, plain.stdout, plain.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_gate_that_is_off_says_so_and_leaves_the_exit_code(gradscope, write):
    write("train.py", "print('trained')")
    done = gradscope("run", "-q", "--check", "train.py", GRADSCOPE="OFF")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == "note: GRADSCOPE=off is set: train.py is not checked\n"


def test_script_that_is_not_there_is_reported_though_off(gradscope):
    done = gradscope("run", "train.py", GRADSCOPE="off")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: cannot open 'train.py'")


def test_off_watches_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADSCOPE", "off")
    with watch(save=tmp_path / "x.gradscope") as watched:
        assert sys.modules["gradscope.capture.training.watch"].TrainingWatch._current is None
    assert (watched.steps, watched.findings) == (0, ())
    assert "0 parameters" in str(watched.report())
    assert not list(tmp_path.iterdir())


def test_without_tensors_nothing_of_a_look_is_installed(gradscope_in, write, tmp_path):
    write("train.py", TRAINING)
    options = ("run", "-o", "-", "--output-format", "json")
    done = gradscope_in(tmp_path, *options, "--no-tensors", "train.py")
    assert done.stdout.startswith("0 0\n")
    assert "not wanted (--no-tensors, or tensors=False)" in done.stdout
    assert not gradscope_in(tmp_path, *options, "train.py").stdout.startswith("0 0\n")


def test_tensors_are_not_wanted_and_wanted(gradscope, write):
    write("train.py", SCRIPT)
    done = gradscope("run", "--no-tensors", "--tensors-at", "3", "train.py")
    assert done.returncode == 2
    assert "--no-tensors and --tensors-at 3 cannot be combined" in done.stderr
