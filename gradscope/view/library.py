"""Finds the recordings that are served. Addresses name them by keys, and never by paths."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock

from gradscope.comparison.side import rank_of_file
from gradscope.frozen import dataclass

SUFFIX = ".gradscope"

_UNSEEN = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders that are not searched, like those with a name that begins with a dot."""

_LEAST, _SHARE = 0.5, 0.05
"""Seconds between two searches at least, and the largest share of the time for them."""

Stamp = tuple[tuple[int, int], ...]
"""Time and size of the files of a recording: it is unchanged as long as these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A recording, or those of the ranks of one job."""

    key: str
    """Its name in addresses."""
    name: str
    """Its path below the folder; of several ranks the name that they share."""
    paths: tuple[Path, ...]
    """Its files, by rank; empty if there is none, or none yet."""

    @property
    def stamp(self) -> Stamp:
        """Time and size of its files, and of their logs. A missing file is `(0, 0)`."""
        logs = (path.with_name(f"{path.name}-wal") for path in self.paths)
        return tuple(_stat(path) for path in (*self.paths, *logs))

    @property
    def written(self) -> float:
        """When it was last written, in seconds since the epoch."""
        return max((time for time, _ in self.stamp), default=0) / 1e9


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


class Library:
    """The recordings of some folders and files.

    Args:
        given: Folders, whose subfolders are searched too, and files, which need not exist yet.
    """

    def __init__(self, given: Sequence[Path]) -> None:
        self._given = tuple(path.absolute() for path in given)
        folders = [one if one.is_dir() else one.parent for one in self._given]
        self.root = Path(os.path.commonpath(folders))
        """Folder from which names are shown."""
        is_file = len(self._given) == 1 and not self._given[0].is_dir()
        self.single = self._key(_joined(self._given[0])) if is_file else None
        """Key of the only recording; None if there may be several."""
        self._lock = Lock()
        self._entries: list[Entry] = []
        self._next = 0.0

    def scan(self) -> tuple[Entry, ...]:
        """Return all recordings, the last written first."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                self._entries = self._searched()
                now = time.monotonic()
                self._next = now + max(_LEAST, (now - began) / _SHARE)
            entries = self._entries
        return tuple(sorted(entries, key=lambda one: (-one.written, one.name)))

    def _searched(self) -> list[Entry]:
        groups: dict[Path, list[tuple[int, Path]]] = {}
        for path in self._files():
            rank = rank_of_file(path.name)
            groups.setdefault(_joined(path), []).append((-1 if rank is None else rank[1], path))
        return [
            Entry(key=self._key(joined), name=self._shown(joined), paths=_in_order(files))
            for joined, files in groups.items()
        ]

    def find(self, key: str) -> Entry | None:
        """Return the recording of a key; None if there is none."""
        known = next((one for one in self.scan() if one.key == key), None)
        if known is None and key == self.single:
            joined = _joined(self._given[0])
            return Entry(key=key, name=self._shown(joined), paths=())
        return known

    def _files(self) -> Iterator[Path]:
        files = (
            file for one in self._given for file in (_below(one) if one.is_dir() else _of(one))
        )
        return iter(dict.fromkeys(files))

    def _shown(self, path: Path) -> str:
        return os.fsencode(path.relative_to(self.root)).decode("utf-8", "replace")

    @staticmethod
    def _key(joined: Path) -> str:
        return sha256(os.fsencode(joined)).hexdigest()[:16]


def _below(folder: Path) -> Iterator[Path]:
    """Yield the recordings in a folder and below it; links to folders are not followed."""
    for place, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and one not in _UNSEEN]
        yield from (Path(place, one) for one in files if _is_recording(one))


def _of(file: Path) -> Iterator[Path]:
    """Yield a file, and the ranks of the job that it names."""
    if file.exists():
        yield file
    if rank_of_file(file.name) is None and file.parent.is_dir():
        siblings = (one for one in file.parent.iterdir() if _is_recording(one.name))
        yield from (one for one in siblings if one != file and _joined(one) == file)


def _is_recording(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _joined(path: Path) -> Path:
    """Return the common name of the ranks of a job; a path that is not of a rank as it is."""
    rank = rank_of_file(path.name)
    return path if rank is None else path.with_name(f"{rank[0]}{SUFFIX}")


def _in_order(files: Iterable[tuple[int, Path]]) -> tuple[Path, ...]:
    return tuple(path for _, path in sorted(files))
