"""The user's files as they ran: read once, and parsed on demand."""

import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Recording, Site, is_installed
from gradscope.source_edits.source_file import SourceFile
from gradscope.source_edits.text_edits import lines_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file as it was read."""

    content: bytes
    encoding: str
    text: str
    """The text with its own line breaks."""


def read_file(path: Path) -> ReadFile | None:
    """Return a file of Python code; None if it cannot be read."""
    try:
        content = path.read_bytes()
        # As Python itself reads source: with its byte order mark and its coding comment. Opened as
        # text, a file would be read in the locale's encoding, and lose its line breaks.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (OSError, SyntaxError, ValueError):
        # An unknown encoding is a SyntaxError, a wrong byte a ValueError.
        return None
    # What no edit touches has to stay as it is, to the byte.
    is_lossless = text.encode(encoding) == content
    return ReadFile(content=content, encoding=encoding, text=text) if is_lossless else None


class SourceFiles:
    """The files of the user that recordings name, unless they changed since they were made."""

    def __init__(self, *recordings: Recording) -> None:
        self._lines: dict[str, dict[int, str]] = {}
        for recording in recordings:
            _add_lines(self._lines, recording)
        self._read: dict[str, ReadFile | None] = {}
        self._parsed: dict[str, SourceFile | None] = {}

    def at(self, site: Site | RelatedLocation | None) -> SourceFile | None:
        """Return the file of a line; None if it is not the user's, or not exactly what ran."""
        return None if site is None or is_installed(site.file) else self.file(site.file)

    def file(self, path: str) -> SourceFile | None:
        """Return a file; see `at`."""
        if path not in self._parsed:
            self._parsed[path] = self._parse(path)
        return self._parsed[path]

    def read(self, path: str) -> ReadFile | None:
        """Return the content of a file, as it was read first."""
        if path not in self._read:
            is_code = Path(path).suffix == ".py"
            self._read[path] = read_file(Path(path)) if is_code else None
        return self._read[path]

    def _parse(self, path: str) -> SourceFile | None:
        found = self.read(path)
        if found is None or not _are_in(self._lines.get(path, {}), lines_of(found.text)):
            return None
        try:
            return SourceFile(path, found.text)
        except ValueError:
            return None


def _add_lines(found: dict[str, dict[int, str]], recording: Recording) -> None:
    """Add the known lines of each file by number, without surrounding spaces."""
    for site in recording.sites:
        if site.source:
            found.setdefault(site.file, {})[site.line] = site.source.strip()
    for record in recording.evidence_of(SourceRecord):
        lines = found.setdefault(record.file, {})
        lines.update((at, text.strip()) for at, text in enumerate(record.lines, record.first))


def _are_in(lines: dict[int, str], text: Iterable[str]) -> bool:
    """Return whether a text has all of the lines; a file of which none is known has not."""
    found = [line.strip() for line in text]
    return bool(lines) and all(
        number <= len(found) and found[number - 1] == line for number, line in lines.items()
    )
