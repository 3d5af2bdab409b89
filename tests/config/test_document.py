"""Which file counts, and files that cannot be read."""

from pathlib import Path

import pytest

from gradscope.config import configured_settings, read_configuration
from gradscope.errors import GradscopeError
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings

IGNORES = '[tool.gradscope]\nignore = ["GS101"]\n'


def failure(file=None):
    with pytest.raises(GradscopeError) as caught:
        read_configuration(file)
    return caught.value


def test_nearest_file_that_configures_gradscope_counts(project):
    project(IGNORES, "../../pyproject.toml")
    project('[tool.gradscope]\nignore = ["GS102"]', "../pyproject.toml")
    assert configured_settings().ignore == ("GS102",)
    project('[project]\nname = "x"\n[tool.ruff]\nline-length = 100')
    found = read_configuration()
    assert found.settings.ignore == ("GS102",)
    assert found.file == Path.cwd().parent / "pyproject.toml"
    assert found.folder == Path.cwd().parent
    project("[tool.gradscope]")
    assert configured_settings() == DEFAULT_SETTINGS


def test_without_a_file_the_defaults_count(project):
    found = read_configuration()
    assert (found.file, found.folder) == (None, Path.cwd())
    assert found.settings == DEFAULT_SETTINGS
    assert not found.values and not found.targets and not found.sources


def test_named_file_counts_alone(project):
    project(IGNORES)
    other = project('[tool.gradscope]\nselect = ["GS2"]', "../other.toml")
    found = read_configuration(other)
    assert found.settings == Settings(select=("GS2",))
    assert found.file == Path.cwd().parent / "other.toml"
    assert failure(Path("missing.toml")).what == "no such file: `missing.toml`"
    assert failure(project("[tool.ruff]", "none.toml")).what.startswith(
        "`none.toml` has no table [tool.gradscope]"
    )


def test_folder_named_like_the_file_is_passed_over(project):
    project(IGNORES, "../pyproject.toml")
    Path("pyproject.toml").mkdir()
    assert configured_settings().ignore == ("GS101",)
    assert failure(Path("pyproject.toml")).what == "cannot read `pyproject.toml`"
    assert failure(Path("..")).help == "name the file: ../pyproject.toml"


def test_link_counts_where_it_lies(project):
    project(IGNORES, "../../shared.toml")
    Path("pyproject.toml").symlink_to("../../shared.toml")
    found = read_configuration()
    assert found.settings.ignore == ("GS101",)
    assert found.folder == Path.cwd()


def test_link_that_leads_nowhere_is_an_error(project):
    project(IGNORES, "../pyproject.toml")
    Path("pyproject.toml").symlink_to("missing.toml")
    error = failure()
    assert error.what == "cannot read `pyproject.toml`"
    assert error.cause == "it is a symlink to a missing file"


def test_errors_name_a_file_that_lies_elsewhere_in_full(project, tmp_path):
    project("[tool.gradscope]\nx = 1", "../pyproject.toml")
    assert (
        f" in {tmp_path / 'project' / 'pyproject.toml'}:2 is not a known option" in failure().what
    )


def test_broken_files_are_errors(project):
    project("[tool.gradscope\n")
    error = failure()
    assert error.what == "`pyproject.toml` is not valid TOML"
    assert "line 1" in error.cause
    for number in ("[" * 100_000, "9" * 5_000):
        project(f"x = {number}")
        assert failure().what == "`pyproject.toml` is not valid TOML"
    for text, table in (("tool = 3", "tool"), ("tool.gradscope = 3", "tool.gradscope")):
        project(text)
        assert failure().what == f"`{table}` in pyproject.toml has to be a table"


def test_file_that_is_not_utf_8_is_an_error(project):
    Path("pyproject.toml").write_bytes(b'[tool.gradscope]\n# caf\xe9\nignore = ["GS101"]\n')
    error = failure()
    assert error.what == "`pyproject.toml` is not UTF-8, which TOML requires"
    assert error.cause == "byte 0xe9 in line 2"


def test_files_of_windows_are_read(project):
    text = IGNORES.replace("\n", "\r\n") + "seeds = 0\r\n"
    Path("pyproject.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert " in pyproject.toml:3 has to be at least 1" in failure().what


def test_working_directory_that_was_removed_is_an_error(project, tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert failure().what == "the working directory no longer exists"
    (tmp_path / "a.toml").write_text(IGNORES)
    assert failure(tmp_path / "a.toml").what == "the working directory no longer exists"
