"""How paths are shown."""

from pathlib import PurePath

from gradscope.recording.records import Site


def shown_path(file: str, root: str) -> str:
    """Return a path relative to the root where it lies under it, else as it is."""
    path = PurePath(file)
    if not root or not path.is_absolute() or not path.is_relative_to(root):
        return file
    return path.relative_to(root).as_posix()


def shown_site(site: Site | None, root: str) -> str:
    """Return `file:line`, empty without a site."""
    return "" if site is None else f"{shown_path(site.file, root)}:{site.line}"
