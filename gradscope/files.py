"""Writes files completely or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces the file when the block ends without an exception.

    An existing file stays whole until then. A device, a pipe or a file in a read-only folder cannot
    be replaced: its own path is yielded.

    Raises:
        OSError: The file cannot be replaced.
    """
    target = file.resolve()  # the file behind a symbolic link, so that the link stays a link
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
