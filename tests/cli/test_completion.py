"""What the shell suggests."""

import pytest
import torch

from gradscope.cli.shell.completion import completer_of
from gradscope.options.declaration import Option


@pytest.fixture
def suggested(tmp_path, monkeypatch):
    """The words for an unfinished one, of an option with a placeholder, in a folder with files."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gradscope.targets]\nsmall = "net.py:Net(2)"\n', encoding="utf-8"
    )
    for name in ("net.py", "run.gradscope", "notes.txt", "nets/deep.py", ".hidden/net.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)

    def words(incomplete, *, metavar=None, name="value"):
        completer = completer_of(Option(help="", metavar=metavar), name)
        return [word for word, _ in completer(incomplete)]

    return words


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("GS70", [f"GS70{number}" for number in range(1, 10)]),
        ("gs201", ["GS201"]),
        ("gradient-c", ["gradient-cancels", "gradient-cut"]),
        ("fl", ["float16-without-scaler", "flat-loss", "flow"]),
        ("GS101,GS70", [f"GS101,GS70{number}" for number in range(1, 10)]),
        ("nothing", []),
    ],
)
def test_rules_by_code_name_and_family(suggested, incomplete, expected):
    assert sorted(suggested(incomplete, metavar="RULE")) == sorted(expected)


@pytest.mark.parametrize(
    ("metavar", "incomplete", "expected"),
    [
        ("TARGET", "", ["small", "net.py", "nets/"]),
        ("TARGET", "n", ["net.py", "nets/"]),
        ("TARGET", "nets/", ["nets/deep.py"]),
        ("TARGET", "absent/", []),
        ("RECORDING", "", ["nets/", "run.gradscope"]),
        ("TARGET|RECORDING", "r", ["run.gradscope"]),
        ("FORMAT=FILE", "sa", ["sarif="]),
    ],
)
def test_targets_recordings_and_formats(suggested, metavar, incomplete, expected):
    assert suggested(incomplete, metavar=metavar) == expected


def test_a_wrong_configuration_suggests_files(suggested, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.gradscope]\nseeds = 'x'\n", encoding="utf-8")
    assert suggested("n", metavar="TARGET") == ["net.py", "nets/"]


def test_optimizers_are_those_of_torch(suggested):
    known = {
        name.lower()
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and name != "Optimizer"
    }
    assert set(suggested("", name="optimizer")) == known
    assert suggested("adamw", name="optimizer") == ["adamw"]


def test_other_values_are_left_to_the_shell():
    assert completer_of(Option(help="", metavar="N"), "steps") is None


def test_a_shell_gets_its_words(gradscope_in, tmp_path):
    def complete(line):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        done = gradscope_in(tmp_path, _GRADSCOPE_COMPLETE="complete_bash", **words)
        return done.stdout.split()

    assert complete("gradscope inspect --select GS70") == [
        f"GS70{number}" for number in range(1, 10)
    ]
    assert complete("gradscope inspect --output-format j") == ["json", "jsonl", "junit"]
    assert complete("gradscope com") == ["compare"]
