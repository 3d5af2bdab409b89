import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from gradscope.recording.store import save_recording
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from gradscope.session.report import Report
from tests.nightly import some_on_push

FORMATS = ("full", "concise", "json", "jsonl", "markdown")


@pytest.fixture
def run(gradscope_in, tmp_path):
    """Renders recordings, whose numbers are made up: no rule is to judge them."""
    return lambda *arguments: gradscope_in(tmp_path, "report", "--ignore", "ALL", *arguments)


@pytest.fixture
def saved(recording, tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(recording, path)
    return path


@pytest.fixture
def hostile(hostile_recording, tmp_path):
    path = tmp_path / "hostile.gradscope"
    save_recording(hostile_recording, path)
    return path


@pytest.mark.parametrize("output_format", some_on_push(FORMATS, 3))
def test_recording_is_rendered_in_every_format(saved, output_format, run):
    done = run(saved, "--output-format", output_format)
    assert (done.returncode, done.stderr) == (0, "")
    assert "last.weight" in done.stdout


@pytest.mark.parametrize("output_format", some_on_push(FORMATS, 3))
def test_hostile_recording_sends_no_escape_to_the_terminal(hostile, output_format, run):
    done = run(hostile, "--output-format", output_format, "--tensors", "all", "--color", "never")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(sign.isprintable() or sign == "\n" for sign in done.stdout)


@pytest.fixture
def judged(recording):
    """The report as a command makes it that leaves every rule out."""
    return Report.from_recording(recording, judge(recording, Settings(ignore=("ALL",))))


def test_json_on_stdout_is_the_report(saved, judged, run):
    done = run(saved, "--output-format", "json")
    assert done.stdout == judged.to_json() + "\n"


def test_torch_is_not_imported_in_any_format(saved):
    script = (
        "import sys\n"
        "from gradscope.cli.app import app\n"
        f"for output_format in {FORMATS}:\n"
        f"    app(['report', {str(saved)!r}, '--output-format', output_format],\n"
        "        standalone_mode=False)\n"
        "    assert 'torch' not in sys.modules, output_format\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_output_file_takes_the_report_and_stdout_stays_empty(saved, judged, tmp_path, run):
    done = run(saved, "--output-format", "json", "-o", tmp_path / "a.json")
    assert done.stdout == ""
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(judged.to_json())


def test_module_and_sort_reach_the_view(saved, run):
    done = run(saved, "--output-format", "concise", "--module", "first")
    assert "first.weight" in done.stdout and "last" not in done.stdout
    done = run(saved, "--output-format", "concise", "--module", "frist")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean `first`?" in done.stderr


def test_several_recordings_follow_each_other(saved, hostile, run):
    done = run(saved, hostile, "--output-format", "concise")
    assert done.stdout.count("global gradient norm") == 2


@pytest.mark.parametrize("options", [["--output-format", "json"], ["-o", "out.txt"]])
def test_output_for_one_report_refuses_several(saved, hostile, options, run):
    done = run(saved, hostile, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "2 recordings" in done.stderr


def test_bad_recording_is_an_error_of_one_line(tmp_path, run):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    done = run(path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: `{path}` is not a recording of gradscope\n"


def test_saved_recording_renders_as_the_report_it_came_from(judged, tmp_path, run):
    judged.save(tmp_path / "b.gradscope")
    done = run(tmp_path / "b.gradscope", "--output-format", "json")
    assert done.stdout == judged.to_json() + "\n"


def test_formats_of_ci_hold_several_recordings_in_one_document(saved, tmp_path, run):
    other = tmp_path / "b.gradscope"
    other.write_bytes(saved.read_bytes())
    done = run(saved, other, "--output-format", "junit", "-o", tmp_path / "out.xml")
    assert done.returncode == 0, done.stderr
    suites = ElementTree.parse(tmp_path / "out.xml").getroot().findall("testsuite")
    assert len(suites) == 2


def test_script_in_place_of_a_recording_names_the_next_command(tmp_path, run):
    (tmp_path / "train.py").write_text("print('not run')\n")
    done = run("train.py")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: `train.py` is a Python file, not a recording",
        "  help: gradscope run --save train.gradscope train.py",
    ]


def test_name_without_its_suffix_is_completed_in_the_help(saved, run):
    done = run(saved.stem)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[1] == f"  help: did you mean `{saved.name}`?"


def test_folder_with_a_recording_that_has_just_begun_shows_the_others(saved, tmp_path, run):
    (tmp_path / "begun.gradscope").touch()
    done = run(tmp_path, "--output-format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["parameters"]
    assert "begun.gradscope` is empty: it is left out" in done.stderr.replace("\n", "")


def test_folder_of_empty_recordings_is_an_error(tmp_path, run):
    (tmp_path / "begun.gradscope").touch()
    done = run(tmp_path)
    assert done.returncode == 2
    assert "is empty" in done.stderr
