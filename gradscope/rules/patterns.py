"""Patterns of module paths."""

from fnmatch import fnmatchcase


def matches(path: str, pattern: str) -> bool:
    """Return whether a module is meant by a pattern; `encoder.*` means `encoder` too."""
    return fnmatchcase(path, pattern) or fnmatchcase(f"{path}.", pattern)
