import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import ENVIRONMENT
from tests.nightly import some_on_push

HEADER = "import torch\nfrom torch import nn\n"
GOOD = """
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
batch = (torch.ones(8, 3), torch.zeros(8, dtype=torch.long))
criterion = nn.CrossEntropyLoss()
"""


def write(folder: Path, text: str, name: str = "model.py") -> None:
    (folder / name).write_text(HEADER + dedent(text))


def test_nothing_the_users_code_prints_reaches_the_report(tmp_path, gradscope_in):
    write(
        tmp_path,
        """
        import atexit, ctypes, os, subprocess, sys
        print("at import")
        os.write(1, b"by descriptor\\n")
        ctypes.CDLL(None).puts(b"by stdio")
        subprocess.run([sys.executable, "-c", "print('by a child')"])
        atexit.register(print, "at exit")
        class Net(nn.Linear):
            def forward(self, x):
                print("in forward")
                return super().forward(x)
        model = Net(3, 1)
        batch = torch.ones(2, 3)
        """,
    )
    done = gradscope_in(tmp_path, "inspect", "model.py", "--output-format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema_version"] == "1.0"
    for text in (
        "at import",
        "by descriptor",
        "by stdio",
        "by a child",
        "at exit",
        "in forward",
    ):
        assert text in done.stderr


def test_output_file_leaves_stdout_empty(tmp_path, gradscope_in):
    write(tmp_path, GOOD)
    done = gradscope_in(
        tmp_path, "inspect", "model.py", "--output-format", "json", "-o", "report.json",
        "--save", "run.gradscope",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["target"]["name"] == "model.py"
    assert (tmp_path / "run.gradscope").stat().st_size > 0
    assert "note: wrote report.json" in done.stderr


def test_existing_recording_is_kept_without_force(tmp_path, gradscope_in):
    write(tmp_path, GOOD)
    (tmp_path / "run.gradscope").write_text("precious")
    done = gradscope_in(tmp_path, "inspect", "model.py", "--save", "run.gradscope")
    assert done.returncode == 2
    assert "error: 'run.gradscope' already exists" in done.stderr
    assert (tmp_path / "run.gradscope").read_text() == "precious"
    done = gradscope_in(tmp_path, "inspect", "model.py", "--save", "run.gradscope", "--force")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.gradscope").read_bytes()[:6] == b"SQLite"


@pytest.mark.slow
def test_format_comes_from_the_environment(tmp_path, gradscope_in):
    write(tmp_path, GOOD)
    done = gradscope_in(tmp_path, "inspect", "model.py", GRADSCOPE_OUTPUT_FORMAT="json")
    assert json.loads(done.stdout)["target"]["loss"] == "criterion(output, target)"


def test_missing_file_ends_with_three_lines(tmp_path, gradscope_in):
    write(tmp_path, GOOD)
    done = gradscope_in(tmp_path, "inspect", "modle.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: cannot open 'modle.py'\n"
        "  cause: there is no such file\n"
        "  help: did you mean 'model.py'?\n"
    )


def test_hostile_names_are_shown_as_they_are(tmp_path, gradscope_in):
    done = gradscope_in(tmp_path, "inspect", "[/x]\x1b[31m.py")
    assert done.returncode == 2
    assert "'[/x]\\x1b[31m.py'" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.slow
def test_hostile_message_cannot_rule_the_terminal(tmp_path, gradscope_in):
    write(tmp_path, "raise ValueError('[/x] \\x1b[31mred')\n")
    done = gradscope_in(tmp_path, "inspect", "model.py")
    assert done.returncode == 2
    assert "[/x] \\x1b[31mred" in done.stderr
    assert "\x1b" not in done.stderr


def test_failed_forward_shows_the_users_frames_only(tmp_path, gradscope_in):
    write(
        tmp_path,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 1)
            def forward(self, x):
                return self.layer(x)  # here
        model = Net()
        batch = torch.ones(2, 4)
        """,
    )
    done = gradscope_in(tmp_path, "inspect", "model.py")
    assert done.returncode == 2
    assert "# here" in done.stderr
    assert "_call_impl" not in done.stderr.partition("Traceback")[2]
    assert "gradscope/" not in done.stderr.partition("Traceback")[2]
    assert "first layer Linear(3, 1) expects 3 features" in done.stderr
    full = gradscope_in(tmp_path, "inspect", "model.py", "-v")
    assert "_call_impl" in full.stderr
    assert full.stderr.endswith(done.stderr[done.stderr.index("error:") :])


@pytest.mark.slow
def test_arguments_after_two_dashes_are_the_files(tmp_path, gradscope_in):
    write(tmp_path, "import sys\nassert sys.argv[1:] == ['--lr', '1'], sys.argv\n" + GOOD)
    arguments = ("inspect", "model.py", "-o", "out.txt", "--output-format", "json")
    assert gradscope_in(tmp_path, *arguments, "--", "--lr", "1").returncode == 0
    done = gradscope_in(tmp_path, *arguments, "other.py")
    assert done.returncode == 2
    assert "expected one TARGET" in done.stderr


@pytest.mark.slow
def test_missing_folder_is_told_before_anything_runs(tmp_path, gradscope_in):
    write(tmp_path, "raise SystemExit(9)\n")
    done = gradscope_in(tmp_path, "inspect", "model.py", "-o", "nowhere/report.txt")
    assert done.returncode == 2
    assert "no such directory: 'nowhere'" in done.stderr


@pytest.mark.slow
def test_interrupt_gives_130(tmp_path, gradscope_in):
    write(tmp_path, "raise KeyboardInterrupt\n")
    assert gradscope_in(tmp_path, "inspect", "model.py").returncode == 130


@pytest.mark.parametrize(
    "arguments", some_on_push([["--help"], ["-h"], ["inspect", "-h"], ["-V"], []], 2)
)
def test_help_and_version_do_not_import_torch(tmp_path, arguments, packages_imported_by):
    done, packages = packages_imported_by(tmp_path, *arguments)
    assert "torch" not in packages
    assert done.returncode == (0 if arguments else 2)
    assert "gradscope" in done.stdout


@pytest.mark.nightly
def test_closed_stdout_does_no_harm(tmp_path):
    write(tmp_path, GOOD)
    command = f"{sys.executable} -m gradscope inspect model.py -o r.json --output-format json >&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.json").exists()


@pytest.mark.nightly
def test_reader_that_stops_early_does_no_harm(tmp_path):
    write(tmp_path, GOOD)
    command = (
        f"{sys.executable} -m gradscope inspect model.py --output-format json | true; echo done"
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


@pytest.mark.slow
def test_results_lie_where_the_command_was_started(tmp_path, gradscope_in):
    write(tmp_path, "import os\nos.chdir('/')\n" + GOOD)
    done = gradscope_in(
        tmp_path, "inspect", "model.py", "-o", "report.txt", "--save", "run.gradscope"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.txt").exists()
    assert (tmp_path / "run.gradscope").exists()


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", some_on_push([["inspect", "model.py"], ["rule"], ["--help"]], 2))
def test_full_stdout_is_one_line_and_no_bug_report(tmp_path, server, line):
    write(tmp_path, GOOD)
    streams = ["/dev/null", "/dev/full", tmp_path / "err"]
    server.start(tmp_path, line, ENVIRONMENT, streams=streams)
    assert server.ended() == 2
    told = (tmp_path / "err").read_text()
    assert "cannot write to stdout" in told
    assert "Traceback" not in told


BROKEN = """
class Net(nn.Linear):
    def forward(self, x):
        hidden = torch.exp(super().forward(x))
        hidden += 1
        return hidden
model = Net(3, 1)
batch = torch.ones(2, 3)
def loss_fn(output):
    return output.mean()
"""


def test_failed_backward_is_reported_with_exit_code_2(tmp_path, gradscope_in):
    write(tmp_path, BROKEN)
    done = gradscope_in(tmp_path, "inspect", "model.py", "--save", "run.gradscope")
    assert done.returncode == 2
    assert "GS503" in done.stdout
    assert "\n6 \u2502" in done.stdout
    assert "RuntimeError: one of the variables needed for gradient computation" in done.stderr
    assert "error: backward failed in ExpBackward0" in done.stderr
    assert "contextlib" not in done.stderr
    again = gradscope_in(tmp_path, "report", "run.gradscope", "--output-format", "json")
    assert again.returncode == 0
    assert [finding["rule"] for finding in json.loads(again.stdout)["findings"]] == ["GS503"]


@pytest.mark.slow
@pytest.mark.parametrize("output_format", some_on_push(["json", "jsonl", "markdown", "concise"], 2))
def test_failed_backward_is_reported_in_every_format(tmp_path, output_format, gradscope_in):
    write(tmp_path, BROKEN)
    done = gradscope_in(
        tmp_path, "inspect", "model.py", "--output-format", output_format, "-o", "report"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "GS503" in (tmp_path / "report").read_text()


def test_a_loss_without_a_graph_is_reported_with_exit_code_2(tmp_path, gradscope_in):
    write(tmp_path, GOOD + "criterion = lambda output, target: output.detach().sum()\n")
    done = gradscope_in(tmp_path, "inspect", "model.py", "--output-format", "concise")
    assert done.returncode == 2
    assert "GS501" in done.stdout
    assert "has no grad_fn" in done.stderr


DETACHED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden = self.first(x).detach()
        return self.last(hidden)

batch = (torch.ones(8, 3), torch.zeros(8, dtype=torch.long))
criterion = nn.CrossEntropyLoss()
"""


@pytest.mark.nightly
def test_configuration_chooses_rules_and_options_win(tmp_path, gradscope_in):
    write(tmp_path, DETACHED)
    (tmp_path / "pyproject.toml").write_text('[tool.gradscope]\nignore = ["GS2"]\n')
    (tmp_path / "other.toml").write_text('[tool.gradscope]\nselect = ["reach"]\n')

    def codes(*options):
        done = gradscope_in(tmp_path, "inspect", "model.py", "--output-format", "json", *options)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        return [finding["rule"] for finding in report["findings"]], report["rules"]["ran"]

    found, ran = codes()
    assert found == [] and not any(code.startswith("GS2") for code in ran)
    found, ran = codes("--select", "gradient-cut")
    assert (found, ran) == (["GS201"], ["GS201"])
    found, ran = codes("--config", "other.toml")
    assert found == ["GS201"] and all(code.startswith("GS2") for code in ran)


def test_wrong_configuration_is_told_before_anything_runs(tmp_path, gradscope_in):
    write(tmp_path, "raise SystemExit('it ran')")
    (tmp_path / "pyproject.toml").write_text("[tool.gradscope]\nselct = []\n")
    done = gradscope_in(tmp_path, "inspect", "model.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: `tool.gradscope.selct` in pyproject.toml:2 is not a known option of gradscope\n"
        "  help: did you mean `select`?\n"
    )


def test_saved_recording_shows_the_code_without_the_file(tmp_path, gradscope_in):
    write(tmp_path, DETACHED)
    saved = gradscope_in(tmp_path, "inspect", "model.py", "--save", "a.gradscope")
    (tmp_path / "model.py").unlink()
    shown = gradscope_in(tmp_path, "report", "a.gradscope").stdout
    for text in (saved.stdout, shown):
        assert "[GS201] gradient-cut: " in text
        assert " --> model.py:10 in Net.forward\n" in text
        assert "10 \u2502     hidden = self.first(x).detach()\n" in text
        assert "11 \u2502     return self.last(hidden)\n" in text
