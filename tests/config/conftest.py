from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory, and what makes its configuration file."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)

    def write(text, path="pyproject.toml"):
        file = Path(path)
        file.write_text(text, encoding="utf-8")
        return file

    return write
