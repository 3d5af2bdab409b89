from pathlib import Path

import pytest

from gradscope.errors import GradscopeError
from gradscope.fixes.fixing import write_edited
from gradscope.fixes.options import FixOptions
from gradscope.recording.records import Site
from tests.conftest import ENVIRONMENT
from tests.nightly import some_on_push
from tests.source_edits.test_source_file import files_that_ran

SAMPLE = Path(__file__).parents[2] / "sample_models" / "loss_broadcast.py"


@pytest.mark.parametrize("option", ["diff", "fix"])
def test_without_libcst_one_line_says_what_to_install(option, monkeypatch):
    told = []
    assert FixOptions(**{option: True}).usable(told.append) == FixOptions(**{option: True})
    monkeypatch.setattr("gradscope.fixes.options.find_spec", lambda name: None)
    assert FixOptions().usable(told.append) == FixOptions()
    assert told == []
    assert FixOptions(**{option: True}).usable(told.append) == FixOptions()
    (line,) = told
    assert line.startswith(f"--{option} needs libcst")
    assert line.endswith("pip install 'gradscope-torch[fix]'")


@pytest.mark.parametrize(
    ("name", "option"), some_on_push([("inspect", "--diff"), ("check", "--fix")], 2)
)
def test_without_libcst_findings_are_shown_as_always(name, option, tmp_path, server):
    first = tmp_path / "without_libcst.py"
    first.write_text("import sys\nsys.modules['libcst'] = None\n")
    (tmp_path / "model.py").write_bytes(SAMPLE.read_bytes())
    command = (name, "model.py", "--seed", "0")
    usual = server.run(tmp_path, command, ENVIRONMENT)
    done = server.run(tmp_path, (*command, option), ENVIRONMENT, first=first)
    assert "GS702" in usual.stdout
    assert (done.stdout, done.returncode) == (usual.stdout, usual.returncode)
    assert f"{option} needs libcst" in done.stderr
    assert (tmp_path / "model.py").read_bytes() == SAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diff": True, "fix": True}, "--diff writes nothing"),
        ({"unsafe_fixes": True}, "--unsafe-fixes needs --diff or --fix"),
        ({"fix_only": ["GS7"]}, "--fix-only needs --diff or --fix"),
        ({"fix": True, "fix_only": ["GS0"]}, "no rule `GS0`"),
    ],
)
def test_options_that_do_not_fit_are_errors(options, message):
    with pytest.raises(GradscopeError, match=message):
        FixOptions(**options).check()


def test_recordings_cannot_be_fixed():
    with pytest.raises(GradscopeError, match="a recording cannot be run"):
        FixOptions(diff=True).check(runs_targets=False)


def test_nothing_is_written_if_one_of_the_files_changed(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.py", "b.py")]
    sites = [Site(file=path, line=1, function="", source="x = 1") for path in paths]
    for path in paths:
        (tmp_path / path).write_text("x = 1\n")
    files = files_that_ran(*sites)
    for path in paths:
        assert files.file(path) is not None
    (tmp_path / "b.py").write_text("x = 1  # changed\n")
    with pytest.raises(GradscopeError, match="changed since it was read"):
        write_edited(dict.fromkeys(paths, "x = 2\n"), files)
    assert (tmp_path / "a.py").read_text() == "x = 1\n"
    with pytest.raises(GradscopeError, match=r"b\.py' changed since"):
        write_edited({paths[0]: "x = 2\n"}, files, lambda file: paths[1])
    write_edited({paths[0]: "x = 'é'\n"}, files)
    assert (tmp_path / "a.py").read_bytes() == "x = 'é'\n".encode()
