"""Files that are whole or not there at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of the file when all is written.

    A file that was there stays whole until then. What can only be written in its place, as a
    device, a pipe or a file in a folder where nothing can be made, is yielded itself.

    Raises:
        OSError: The file cannot be replaced.
    """
    target = file.resolve()  # the file behind a symbolic link, which stays one
    if target.exists() and not _is_replaceable(target):
        yield target
        return
    partial = target.with_name(f".gradscope-{os.getpid()}.part")
    try:
        yield partial
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _is_replaceable(file: Path) -> bool:
    is_own = file.is_file() and not file.is_mount()  # containers mount single files too
    return is_own and os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
