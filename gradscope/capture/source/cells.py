"""The names of notebook cells: `Cell [3]` in place of a file that only the kernel knows."""

import linecache
import sys
from typing import Any

_FILES: dict[str, str] = {}
"""By name of a cell: the file under which Python knows its code."""


def shown_file(file: str) -> str:
    """Return the name of a notebook's cell by its execution count, of other code its file."""
    number = _execution_count(file)
    if number is None:
        return file
    name = f"Cell [{number}]"
    _FILES[name] = file
    return name


def lines_of(file: str) -> list[str]:
    """Return the source of a file or of a cell; empty if it cannot be read."""
    return linecache.getlines(_FILES.get(file, file))


def _execution_count(file: str) -> int | None:
    """Return the number that IPython shows for a cell; None for other code."""
    shell: Any = sys.modules.get("IPython.core.getipython")
    running = None if shell is None else shell.get_ipython()
    cells = getattr(getattr(running, "compile", None), "_filename_map", {})
    number = cells.get(file)
    return number if isinstance(number, int) else None
