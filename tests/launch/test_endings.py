"""The end of a run is recorded, and shown in every format."""

import json

import pytest

from tests.nightly import some_on_push

TRAINS = "import sys, torch\ntorch.train(3)\n"

ENDINGS = [
    ("", {"kind": "returned", "exit_code": 0}, None),
    ("sys.exit()", {"kind": "exited", "exit_code": 0}, None),
    ("sys.exit(3)", {"kind": "exited", "exit_code": 3}, "ended by sys.exit(3)"),
    (
        "sys.exit('no data')",
        {"kind": "exited", "exit_code": 1, "message": "no data"},
        "ended by sys.exit(1): no data",
    ),
    (
        "[][0]",
        {"kind": "raised", "exception": "IndexError"},
        "train.py:3: list index out of range",
    ),
    (
        "import json; json.loads('{')",
        {"kind": "raised", "exception": "JSONDecodeError"},
        "train.py:3: Expecting property name",
    ),
    ("raise KeyboardInterrupt", {"kind": "interrupted"}, "train.py:3"),
    (
        "raise ValueError('first\\nsecond')",
        {"kind": "raised", "message": "first"},
        "train.py:3: first",
    ),
]


def reported(gradscope, recording, output_format):
    return gradscope("report", recording, "--output-format", output_format).stdout


@pytest.mark.parametrize(
    ("last", "recorded", "told"), some_on_push(ENDINGS, 2), ids=[one[0] for one in ENDINGS]
)
def test_the_end_of_a_script_is_reported(gradscope, script, last, recorded, told):
    script(TRAINS + last)
    done = gradscope("run", "train.py", COLUMNS="300")
    ending = json.loads(reported(gradscope, "train.gradscope", "json"))["training_run"]["ending"]
    assert recorded.items() <= ending.items()
    report = done.stderr.split("gradscope run", 1)[1]
    assert ("ended by" in report) is (told is not None)
    assert told is None or told in report


def test_every_format_says_it(gradscope, script):
    script(f"{TRAINS}raise ValueError('no')")
    gradscope("run", "-q", "train.py")
    for output_format in ("full", "concise", "markdown"):
        assert "ended by ValueError" in reported(gradscope, "train.gradscope", output_format)


def test_an_option_of_ours_is_named(gradscope, script):
    script(TRAINS)
    done = gradscope("run", "--stop-after", "2", "train.py")
    assert "ended by --stop-after 2" in done.stderr
    done = gradscope("run", "--stop-after", "2", "-q", "train.py")
    assert done.stderr.startswith("\nNo findings: ")
    assert "gradscope run" not in done.stderr


def test_an_exception_that_cannot_be_told_is_none_of_ours(gradscope, script):
    script(
        """
        import torch
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError
        torch.train(3)
        raise Odd
        """
    )
    done = gradscope("run", "train.py", COLUMNS="300")
    assert "ended by Odd: " in done.stderr and "train.py:7\n" in done.stderr
    assert "bug in gradscope" not in done.stderr


def test_an_exception_may_end_the_script_while_it_is_described(gradscope, script):
    script(f"{TRAINS}class Odd(Exception):\n    def __str__(self): raise SystemExit(4)\nraise Odd")
    done = gradscope("run", "-q", "train.py")
    assert done.returncode == 1
    assert "train.py" in done.stderr
