"""What a reader wants to see of a report, and how paths are shown."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

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


TensorChoice = Literal["none", "top", "all"]
SortKey = Literal["order", "name", "norm", "ratio", "depth"]
"""`order` is that of the forward; `ratio` is gradient norm over weight norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What a reader wants to see; `json` and `jsonl` hold everything, whatever is asked for."""

    tensors: TensorChoice = "top"
    """Tensors to list: none, the notable ones, or all."""
    sort: SortKey = "order"
    top: int = 5
    """Number of the largest and the smallest to list."""
    module: str | None = None
    """Only this module and what lies below it."""
    depth: int | None = None
    """Fold modules deeper than this below the model or `module`."""
    can_save: bool = False
    """Whether the command at hand has `--save`."""
