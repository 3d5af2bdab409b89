"""`gradscope config` as a process."""

import subprocess
import sys


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "gradscope", "config", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={"COLUMNS": "80", "PYTHONIOENCODING": "ascii", "PATH": ""},
    )


def test_errors_exit_with_2_and_nothing_on_stdout(tmp_path):
    done = run("fail-levle", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown key `fail-levle`\n  help: did you mean `fail-level`?\n"
    (tmp_path / "pyproject.toml").write_text("[tool.gradscope]\nfail-level = 3\n")
    done = run(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "`tool.gradscope.fail-level` in pyproject.toml:2 has to be one of" in done.stderr


def test_terminals_of_few_characters_get_what_they_can_show(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gradscope.targets]\na = "modèle.py"\n', encoding="utf-8"
    )
    done = run(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mod\\xe8le.py" in done.stdout


def test_torch_is_not_imported():
    script = (
        "import sys\n"
        "from gradscope.cli.app import app\n"
        "app(['config'], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
