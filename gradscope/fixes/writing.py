"""Writes edited files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.files import written_whole
from gradscope.source_edits.source_files import SourceFiles


def write_edited(
    texts: Mapping[str, str],
    files: SourceFiles,
    original: Callable[[str], str] = lambda file: file,
) -> None:
    """Write the edited texts of files, in their encoding and with their line breaks.

    Args:
        texts: Texts by path.
        files: The files as they were read.
        original: Returns the file to write for an edited one, which may be a copy.

    Raises:
        GradscopeError: A file changed since it was read, or cannot be written. Files that changed
            are noticed before anything is written.
    """
    for file in texts:
        if not is_current(files, file, original(file)):
            raise GradscopeError(
                f"{original(file)!r} changed since it was read; nothing is written",
                help="run the command again",
            )
    for file, text in texts.items():
        read = files.read(file)
        assert read is not None
        try:
            with written_whole(Path(original(file))) as path:
                path.write_bytes(text.encode(read.encoding))
        except OSError as error:
            raise GradscopeError(f"cannot write {original(file)!r}", cause=error.strerror) from None


def is_current(files: SourceFiles, file: str, on_disk: str) -> bool:
    """Return whether a file on disk is as one that was read."""
    read = files.read(file)
    try:
        return read is not None and Path(on_disk).read_bytes() == read.content
    except OSError:
        return False
