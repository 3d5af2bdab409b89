"""A configuration file and its tables, whose errors name the file, the line and the key."""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.checks import Check, Value, WrongValue, did_you_mean

KeyPath = tuple[str, ...]
"""Path of a key from the top of the file."""

_LAST = ("]", "}", '"""', "'''")
"""Last characters of a statement of several lines, before a comment."""


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line in which each key of a valid file first stands."""
    found: dict[KeyPath, int] = {}
    header: KeyPath = ()
    for number, statement, is_header in _statements(text):
        if is_header:
            header = ()
        for path in _paths(statement):
            found.setdefault(header + path, number)
        if is_header:
            # The header of `a.b` names `a` as well: the longest path is its own.
            header = max(_paths(statement), key=len)
    return found


def _statements(text: str) -> Iterator[tuple[int, Mapping[str, object], bool]]:
    """Yield the line and content of each statement, and whether it is a table's header.

    A statement is the fewest lines that are valid on their own.
    """
    lines: list[str] = []
    # TOML ends lines at line feeds. `splitlines` also splits strings at form feeds.
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


def _paths(content: Mapping[str, object]) -> list[KeyPath]:
    """Return the path of every key in nested tables."""
    found: list[KeyPath] = []
    for key, value in content.items():
        found.append((key,))
        if isinstance(value, Mapping):
            found += [(key, *path) for path in _paths(value)]
    return found


FILE_NAME = "pyproject.toml"
TABLE = ("tool", "gradscope")

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Location of a value in the file."""

    file: str
    """Displayed file name, relative to the working directory if inside it."""
    line: int | None
    """Line number; None if it is unknown."""

    def __str__(self) -> str:
        """Return the location, such as `pyproject.toml:12`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file with the table `tool.gradscope`."""

    path: Path
    """Absolute path of the file, which may be a link."""
    name: str
    """Displayed name."""
    lines: Mapping[tuple[str, ...], int]
    table: Mapping[str, object]

    def source(self, path: tuple[str, ...]) -> Source:
        """Return the location of a key of the table."""
        return Source(file=self.name, line=self.lines.get((*TABLE, *path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the file, below `tool.gradscope`."""

    document: Document
    path: tuple[str, ...]
    """Path below `tool.gradscope`, which itself is empty."""
    values: Mapping[str, object]

    @property
    def name(self) -> str:
        """Name between brackets in the file."""
        return dotted((*TABLE, *self.path))

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of the table, in the order of the file."""
        return iter(self.values)

    def fail(self, key: str, wrong: str, *, help: str | None = None) -> NoReturn:
        """Raise an error that says what is wrong with a key."""
        position = self.document.source((*self.path, key))
        whole = dotted((*TABLE, *self.path, key))
        raise GradscopeError(f"`{whole}` in {position} {wrong}", help=help)

    def check_keys(self, known: Collection[str], what: str, *, listed: str | None = None) -> None:
        """Check that every key is known.

        Args:
            known: Names of the known keys.
            what: Kind of thing that a key names.
            listed: Hint at a list of all keys, if they are too many for the help.
        """
        for key in self.values:
            if key not in known:
                names = f"it has {', '.join(known)}" if known else None
                self.fail(
                    key, f"is not a known {what}", help=did_you_mean(key, known) or listed or names
                )

    def table(self, key: str) -> "Table":
        """Return the table under a key; an empty one if it is missing."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.fail(key, "has to be a table", help=f"[{dotted((*TABLE, *self.path, key))}]")
        return Table(document=self.document, path=(*self.path, key), values=value)

    def value(self, key: str, check: Check) -> Value:
        """Return the checked value of a key of the table."""
        try:
            return check(self.values[key])
        except WrongValue as error:
            self.fail(key, error.wrong, help=error.help)


def dotted(path: tuple[str, ...]) -> str:
    """Return the path of a key as TOML writes it."""
    return ".".join(
        key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False) for key in path
    )


def find_document(file: Path | None) -> Document | None:
    """Return a file, or the nearest pyproject.toml with the table; None if there is none.

    Args:
        file: The file; None searches from the working directory upward.

    Raises:
        GradscopeError: A file on the way cannot be read, or the given one has no such table.
    """
    if file is not None:
        document = _read(file, name=str(file))
        if document is None:
            raise GradscopeError(f"`{file}` has no table [{dotted(TABLE)}]")
        return document
    folder = working_directory()
    for parent in (folder, *folder.parents):
        path = parent / FILE_NAME
        # A broken link is an error: with a missing file, the defaults would hold unnoticed.
        if path.is_symlink() or path.is_file():
            document = _read(path, name=FILE_NAME if parent == folder else str(path))
            if document is not None:
                return document
    return None


def working_directory() -> Path:
    """Return the working directory.

    Raises:
        GradscopeError: It has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise GradscopeError(
            "the working directory no longer exists", help="change to an existing directory"
        ) from None


def _read(path: Path, *, name: str) -> Document | None:
    """Return a file; None if it does not have the table."""
    text = _text(path, name)
    try:
        content: object = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: also for huge integers
        raise GradscopeError(f"`{name}` is not valid TOML", cause=str(error)) from None
    for depth, key in enumerate(TABLE):
        if not isinstance(content, Mapping):
            raise GradscopeError(f"`{dotted(TABLE[:depth])}` in {name} has to be a table")
        if key not in content:
            return None
        content = content[key]
    if not isinstance(content, Mapping):
        raise GradscopeError(f"`{dotted(TABLE)}` in {name} has to be a table")
    # Paths in the file start where its link is, not where the link leads.
    position = (working_directory() / path.parent).resolve() / path.name
    return Document(path=position, name=name, lines=lines_of(text), table=content)


def _text(path: Path, name: str) -> str:
    try:
        # Editors on Windows start a file with a byte order mark.
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.is_symlink():
            raise GradscopeError(
                f"cannot read `{name}`", cause="it is a symlink to a missing file"
            ) from None
        raise GradscopeError(f"no such file: `{name}`") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise GradscopeError(
            f"`{name}` is not UTF-8, which TOML requires",
            cause=f"byte 0x{error.object[error.start]:02x} in line {line}",
            help="save it as UTF-8",
        ) from None
    except (OSError, ValueError) as error:  # a ValueError is a null byte in the name
        cause = error.strerror if isinstance(error, OSError) else str(error)
        inside = path / FILE_NAME
        hint = f"name the file: {inside}" if path.is_dir() and inside.is_file() else None
        raise GradscopeError(f"cannot read `{name}`", cause=cause, help=hint) from None
