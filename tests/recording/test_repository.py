import sqlite3

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.meta import repository_of
from gradscope.recording.store import load_recording, save_recording


@pytest.fixture
def folder(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    return inner


def test_folder_alone_is_its_own_repository(folder):
    assert repository_of(folder) == folder


def test_nearest_git_counts_before_any_project_file(folder):
    (folder / "pyproject.toml").touch()
    assert repository_of(folder) == folder
    (folder.parent.parent / ".git").mkdir()
    assert repository_of(folder) == folder.parent.parent
    (folder.parent / ".git").write_text("gitdir: ../elsewhere")  # of a submodule or a worktree
    assert repository_of(folder) == folder.parent


def test_nearest_project_file_counts(folder):
    (folder.parent.parent / "pyproject.toml").touch()
    (folder.parent / "pyproject.toml").touch()
    assert repository_of(folder) == folder.parent


@pytest.fixture
def recording(folder, monkeypatch):
    (folder.parent / ".git").mkdir()
    monkeypatch.chdir(folder)
    return gradscope.inspect(nn.Linear(2, 1), torch.ones(3, 2), lambda out: out.sum()).recording


def test_recording_knows_its_repository(recording, folder, tmp_path):
    assert recording.target.repository == str(folder.parent)
    save_recording(recording, tmp_path / "a.gradscope")
    assert load_recording(tmp_path / "a.gradscope").target == recording.target


def test_recording_of_an_earlier_version_has_its_working_directory(recording, folder, tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(recording, path)
    with sqlite3.connect(path) as base:
        base.execute("DELETE FROM meta WHERE name = 'target.repository'")
    base.close()
    assert load_recording(path).target.repository == str(folder) == recording.target.root
