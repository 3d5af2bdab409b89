"""Files that an export writes, in folders that it makes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.files import written_whole


def check_free(files: Sequence[Path], *, force: bool) -> None:
    """Make sure that files can be written, before anything is.

    Raises:
        GradscopeError: One exists and `force` is not set, or is a folder.
    """
    for file in files:
        if file.is_dir():
            raise GradscopeError(f"cannot write '{file}'", cause="it is a directory")
        if file.exists() and not force:
            raise GradscopeError(
                f"'{file}' exists already", help="add --force to overwrite it, or name another"
            )


@contextmanager
def written(file: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of the file when all is written.

    Raises:
        GradscopeError: It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as path:
            yield path
    except OSError as error:
        raise GradscopeError(f"cannot write '{file}'", cause=error.strerror) from None
