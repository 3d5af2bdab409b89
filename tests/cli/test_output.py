from pathlib import Path

import pytest

from gradscope.check.options import PlannedTarget
from gradscope.cli.output import check_destinations, files_of_target
from gradscope.errors import GradscopeError


def read_by(target):
    return files_of_target(PlannedTarget(name=target, spec=target, folder=Path.cwd()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("code")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "net.py").write_text("code")
    return tmp_path


@pytest.mark.parametrize(
    "target", ["model.py", "./model.py:Net", "model.py:Net(hidden=4)", "model"]
)
@pytest.mark.parametrize("option", ["-o", "--save"])
def test_targets_file_is_never_written(folder, target, option):
    wanted = ("../" + folder.name + "/model.py", None) if option == "-o" else ("-", "model.py")
    save = None if wanted[1] is None else Path(wanted[1])
    with pytest.raises(GradscopeError, match="would overwrite what the command reads") as caught:
        check_destinations(wanted[0], save, force=True, inputs=read_by(target))
    assert option in caught.value.what


def test_module_in_a_package_is_never_written(folder):
    with pytest.raises(GradscopeError, match="would overwrite"):
        check_destinations("package/net.py", None, force=False, inputs=read_by("package.net:model"))


@pytest.mark.parametrize("target", ["", ".", "..", "/", "./", ":", "a.", "~", "*", "ø"])
def test_what_is_no_target_stands_in_nobodys_way(folder, target):
    assert check_destinations("report.txt", None, force=False, inputs=read_by(target)).report


def test_link_to_an_input_is_never_written(folder):
    (folder / "report.txt").symlink_to("model.py")
    with pytest.raises(GradscopeError, match="would overwrite"):
        check_destinations("report.txt", None, force=False, inputs=read_by("model.py"))


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "y" * 300 + "/a.html"])
def test_names_that_no_file_can_have_are_told(folder, name):
    with pytest.raises(GradscopeError, match="cannot write"):
        check_destinations(name, None, force=False)


def test_report_and_recording_need_two_files(folder):
    with pytest.raises(GradscopeError, match="-o and --save both name 'a'"):
        check_destinations("a", Path("./a"), force=True)


def test_report_has_no_recording_s_suffix(folder):
    with pytest.raises(GradscopeError, match="ends as a recording does") as raised:
        check_destinations("run.gradscope", None, force=True)
    assert raised.value.help == "--save run.gradscope"


def test_destinations_do_not_follow_the_working_directory(folder, monkeypatch):
    found = check_destinations("a.txt", Path("b.gradscope"), force=False)
    monkeypatch.chdir("/")
    assert (found.report.text, found.report.path) == ("a.txt", folder.resolve() / "a.txt")
    assert found.recording.path == folder.resolve() / "b.gradscope"


def test_report_does_not_overwrite_its_recording(folder, gradscope_in):
    done = gradscope_in(folder, "report", "model.py", "-o", "model.py")
    assert done.returncode == 2
    assert "error: -o 'model.py' would overwrite what the command reads" in done.stderr
    assert (folder / "model.py").read_text() == "code"
