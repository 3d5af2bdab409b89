"""In which lines of a TOML file its keys stand: the parser does not tell."""

import tomllib
from collections.abc import Iterator, Mapping

Path = tuple[str, ...]
"""Of a key, from the top of the file."""


def lines_of(text: str, table: Path) -> dict[Path, int]:
    """Return the line in which each key of a table, and each key below it, first stands.

    Args:
        text: Of a file that is valid TOML.
        table: The path of the table. Others are passed over, as far as they can be.
    """
    found: dict[Path, int] = {}
    header: Path = ()
    for number, statement, is_header in _statements(text, table):
        prefix = () if is_header else header
        paths = [prefix + path for path in _paths(statement)]
        if is_header:
            header = max(paths, key=len)
        for path in paths:
            found.setdefault(path, number)
    return found


def _statements(text: str, table: Path) -> Iterator[tuple[int, Mapping[str, object], bool]]:
    """Yield the line, content and kind of the statements that may concern a table.

    A statement is the fewest lines that are valid on their own.
    """
    waiting = ""
    start = 0
    is_wanted = True
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        is_header = not waiting and line.lstrip().startswith("[")
        if not waiting:
            start = number
            if not line.strip() or line.lstrip().startswith("#"):
                continue
        if not is_header and not is_wanted:
            continue
        waiting += line + "\n"
        content = _content(waiting)
        if content is None and not is_header:
            continue  # a list or a text of several lines
        waiting = ""
        if content is None:
            continue  # part of a list of lists in a table that is passed over
        if is_header:
            header = max(_paths(content), key=len)
            is_wanted = all(a == b for a, b in zip(header, table, strict=False))
        yield start, content, is_header


def _content(text: str) -> Mapping[str, object] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _paths(content: Mapping[str, object]) -> list[Path]:
    """Return the path of every key in nested tables."""
    found: list[Path] = []
    for key, value in content.items():
        found.append((key,))
        if isinstance(value, Mapping):
            found += [(key, *path) for path in _paths(value)]
    return found
