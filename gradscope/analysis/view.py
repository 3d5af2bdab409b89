"""The reader's choice of what to show in a report, and how paths are shown."""

import re
from functools import lru_cache
from pathlib import PurePath
from typing import Annotated, Literal

from gradscope.frozen import dataclass
from gradscope.options.declaration import Option
from gradscope.recording.records import Site

_CELL = re.compile(r"Cell \[\d+\]")


@lru_cache(maxsize=1024)  # thousands of events are of a few files
def shown_path(file: str, root: str) -> str:
    """Return a path relative to the root if it is below it, otherwise unchanged."""
    path = PurePath(file)
    # `relative_to` raises outside of the root; a cell of a notebook has no absolute path.
    if not root or not path.is_absolute() or not path.is_relative_to(root):
        return file
    return path.relative_to(root).as_posix()


def shown_site(site: Site | None, root: str) -> str:
    """Return `file:line`, empty without a site."""
    return "" if site is None else line_text(shown_path(site.file, root), site.line)


def line_text(path: str, line: int) -> str:
    """Return `file:line`, or `Cell [3], line 10` for a line of a notebook's cell."""
    return f"{path}, line {line}" if is_cell(path) else f"{path}:{line}"


def is_cell(path: str) -> bool:
    """Return whether a path is the name of a notebook's cell."""
    return _CELL.fullmatch(path) is not None


_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
_FOLDERS = 3
"""Parts of a path in an installed package up to which it is shown whole."""


def short_location(location: str, ellipsis: str = "…") -> str:
    """Return `file:line` of an installed package from its name on; of a deep file, the end."""
    # Paths of recordings from Windows have backslashes.
    below = _INSTALLED.sub("", location)
    parts = below.replace("\\", "/").split("/")
    if below == location or len(parts) <= _FOLDERS:
        return below
    return "/".join([ellipsis, *parts[-2:]])


TensorChoice = Literal["none", "top", "all"]
SortKey = Literal["order", "name", "norm", "ratio", "depth"]
"""`order` is the order of the forward; `ratio` is gradient norm over weight norm."""


_REPORT = "Report"

ModuleOption = Annotated[
    str | None, Option("--module", metavar="PATH", help="Show only this module.", panel=_REPORT)
]
DepthOption = Annotated[
    int | None,
    Option(
        "--depth",
        min=0,
        metavar="N",
        help="Fold modules below this depth.",
        panel=_REPORT,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What a reader wants to see; `json` and `jsonl` always contain everything."""

    tensors: Annotated[TensorChoice, Option(help="Tensors to list.", panel=_REPORT)] = "top"
    sort: Annotated[SortKey, Option(help="Order of the lists.", panel=_REPORT)] = "order"
    top: Annotated[
        int,
        Option(
            min=1,
            metavar="N",
            help="Number of largest and smallest entries to list.",
            panel=_REPORT,
        ),
    ] = 5
    module: ModuleOption = None
    depth: DepthOption = None
    """Depth below the model, or below `module`."""
    can_save: bool = False
    """Whether the command has `--save`."""
