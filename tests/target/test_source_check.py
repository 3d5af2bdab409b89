"""Mistakes that a target's source shows, before torch is imported and before the file runs."""

from textwrap import indent

import pytest

from gradscope.cli import running
from gradscope.errors import GradscopeError
from gradscope.target.discovery.source_check import check_source, line_of_training
from gradscope.target.notation import parse_target
from gradscope.target.options import TargetOptions, Trial


def error_of(spec):
    with pytest.raises(GradscopeError) as caught:
        check_source(parse_target(spec))
    return caught.value


STEP = "loss = model(x).mean()\n{0}loss.backward()\n{0}optimizer.step()\n"
LOOP = "for x in data:\n    " + STEP.format("    ")
FUNCTION = "def step(x):\n    " + STEP.format("    ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (LOOP, 3),
        ("import torch\nwith torch.enable_grad():\n" + indent(LOOP, "    "), 5),
        (f"{FUNCTION}while True:\n    step(1)\n", 6),
        ("def train():\n" + indent(LOOP, "    ") + "train()\n", 6),
        ("if True:\n" + indent(LOOP, "    "), 4),
        ("Trainer(model=model).train()\n", 1),
        ("trainer = pl.Trainer(max_epochs=1)\ntrainer.fit(net)\n", 2),
        ("trainer = trl.SFTTrainer(model)\nresult = trainer.train()\n", 2),
        ("def main():\n    t = Trainer(net)\n    t.train()\nmain()\n", 4),
        ("for seed in (0, 1):\n    Trainer(net).fit(net)\n", 2),
    ],
)
def test_file_that_trains_when_imported_is_refused(workplace, text, line):
    workplace.write("train.py", text, header="")
    error = error_of("train.py")
    assert error.what.startswith(f"'train.py' trains when it is imported (line {line}: ")
    assert error.help.startswith("gradscope run train.py")


@pytest.mark.parametrize(
    "text",
    [
        "if __name__ == '__main__':\n" + indent(LOOP, "    "),
        "def train():\n" + indent(LOOP, "    "),
        f"{FUNCTION}step(1)\n",  # one step is no training
        "for x in data:\n    model(x).mean().backward()\n",
        "for x in data:\n    optimizer.step()\n",
        f"def build_model(): ...\n{LOOP}",
        "model.train()\nscaler.fit(x)\n",  # a mode, and another library's estimator
        "def main():\n    Trainer(net).train()\n",
        "trainer = Trainer(net)\nmodel.train()\n",
        "if __name__ == '__main__':\n    Trainer(net).train()\n",
        "class Net:\n    for name in ('a', 'b'):\n        backward = step = name\n",
    ],
)
def test_file_that_only_defines_a_training_is_accepted(workplace, text):
    workplace.write("model.py", text, header="")
    check_source(parse_target("model.py"))


@pytest.mark.parametrize(
    "text",
    [
        "from other import *\n",
        "globals()['Net'] = 1\n",
        "def __getattr__(name): ...\n",
        "import x as Net\n",
        "def make():\n    global Net\n    Net = 1\n",
        "try: ...\nexcept ValueError as Net: ...\n",
        "Net: int = 3\n",
        "syntax error",
    ],
)
def test_name_that_the_file_may_bind_is_left_to_the_import(workplace, text):
    workplace.write("model.py", text, header="")
    check_source(parse_target("model.py:Net"))


def test_unknown_name_is_told_with_the_nearest(workplace):
    workplace.write("model.py", "class Net: ...\n", header="")
    error = error_of("model.py:Nett(3)")
    assert error.what == "'model.py' has no 'Nett'"
    assert error.help == "did you mean 'Net'?"


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("modle.py", "cannot open 'modle.py'"),
        ("modle", "no module named 'modle'"),
        ("model.pyy", "no module named 'model.pyy'"),
    ],
)
def test_file_that_does_not_exist_is_told(workplace, spec, what):
    workplace.write("model.py", "")
    error = error_of(spec)
    assert error.what.startswith(what)
    assert "model.py" in error.help


@pytest.mark.parametrize("spec", ["missing.py", "model.py:Nett", "missing.module"])
def test_wrong_target_is_told_before_torch_is_imported(workplace, monkeypatch, spec):
    workplace.write("model.py", "class Net: ...\n")
    monkeypatch.setattr(running, "_import_torch", lambda: pytest.fail("torch is imported"))
    with pytest.raises(GradscopeError):
        running.record_target(spec, TargetOptions(), Trial(), command="")


MAIN = "if __name__ == '__main__':\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (MAIN + indent(LOOP, "    "), 4),
        (f"{FUNCTION}{MAIN}    step(1)\n", 3),
        (FUNCTION, None),
        (f"{MAIN}    model(x).mean().backward()\n", None),
        (f"def check(model): model.backward()\n{MAIN}    print(step)\n", None),
        (f"{MAIN}    trainer = Trainer(net)\n    trainer.train()\n", 3),
        ("def f(:", None),
    ],
)
def test_line_of_the_training_of_a_script(workplace, text, line):
    workplace.write("train.py", text, header="")
    assert line_of_training("train.py") == line
