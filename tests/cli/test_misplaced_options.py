import pytest

from gradscope.cli.run.command import misplaced_options, run
from gradscope.launch.program import Program


@pytest.mark.parametrize(
    ("arguments", "source", "expected"),
    [
        ((), "import torch", []),
        (("--check",), "import torch", ["--check"]),
        (("--save=x.gradscope",), "import torch", ["--save=x.gradscope"]),
        (("--every", "2"), "import torch", ["--every 2"]),
        (("--no-tensors", "--lr", "1"), "import torch", ["--no-tensors"]),
        (("--save", "x"), "parser.add_argument('--save')", []),
        (("--check",), "@option\ndef main(check: bool): ...", []),
        (("--check",), "parser.parse_known_args()", []),
        (("--epochs", "3"), "import torch", []),
        (("-o", "x"), "import torch", []),  # too short to tell
    ],
)
def test_options_unknown_to_the_script_are_noticed(tmp_path, arguments, source, expected):
    script = tmp_path / "train.py"
    script.write_text(source)
    program = Program(name=str(script), arguments=arguments, is_module=False)
    assert list(misplaced_options(program, run)) == expected
