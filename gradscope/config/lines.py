"""In which lines of a TOML file its keys stand: the parser does not tell."""

import tomllib
from collections.abc import Iterator, Mapping

Path = tuple[str, ...]
"""Of a key, from the top of the file."""

_LAST = ("]", "}", '"""', "'''")
"""What a statement of several lines ends with, but for a comment."""


def lines_of(text: str) -> dict[Path, int]:
    """Return the line in which each key of a valid file first stands."""
    found: dict[Path, int] = {}
    header: Path = ()
    for number, statement, is_header in _statements(text):
        if is_header:
            header = ()
        for path in _paths(statement):
            found.setdefault(header + path, number)
        if is_header:
            header = max(_paths(statement), key=len)
    return found


def _statements(text: str) -> Iterator[tuple[int, Mapping[str, object], bool]]:
    """Yield the line and content of each statement, and whether it is a table's header.

    A statement is the fewest lines that are valid on their own.
    """
    lines: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not lines and (not line.strip() or line.lstrip().startswith("#")):
            continue
        lines.append(line)
        # Parsing a long list anew at each of its lines would take too long.
        if len(lines) > 1 and "#" not in line and not line.rstrip().endswith(_LAST):
            continue
        content = _content("\n".join(lines))
        if content is not None:
            is_header = lines[0].lstrip().startswith("[")
            yield number - len(lines) + 1, content, is_header
            lines = []


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
