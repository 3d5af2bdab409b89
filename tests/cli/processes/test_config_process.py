"""`gradscope config` as a process."""


def test_errors_exit_with_2_and_nothing_on_stdout(tmp_path, gradscope_in):
    done = gradscope_in(tmp_path, "config", "fail-levle")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown key `fail-levle`\n  help: did you mean `fail-level`?\n"
    (tmp_path / "pyproject.toml").write_text("[tool.gradscope]\nfail-level = 3\n")
    done = gradscope_in(tmp_path, "config")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`tool.gradscope.fail-level` in pyproject.toml:2 has to be one of" in done.stderr


def test_terminals_of_few_characters_get_what_they_can_show(tmp_path, ascii_gradscope_in):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gradscope.targets]\na = "modèle.py"\n', encoding="utf-8"
    )
    done = ascii_gradscope_in(tmp_path, "config")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mod\\xe8le.py" in done.stdout


def test_torch_is_not_imported(tmp_path, packages_imported_by):
    done, packages = packages_imported_by(tmp_path, "config")
    assert done.returncode == 0, done.stderr
    assert "torch" not in packages
