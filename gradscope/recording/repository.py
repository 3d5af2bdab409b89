"""The repository that a folder belongs to."""

from pathlib import Path

# In a worktree or a submodule `.git` is a file.
_MARKS = (".git", "pyproject.toml")


def repository_of(folder: Path) -> Path:
    """Return the nearest folder upward that has `.git`, else `pyproject.toml`, else the folder."""
    upward = (folder, *folder.parents)
    return next((one for mark in _MARKS for one in upward if (one / mark).exists()), folder)
