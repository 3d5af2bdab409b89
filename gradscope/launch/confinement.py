"""Keeps a script from writing outside a folder and from opening connections."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_OF_PATHS = {
    "os.chmod": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.truncate": 1,
}
"""Audit events by their number of paths, which come first."""

_OF_PROGRAMS = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")

_DEVICES = ("/dev/", "/proc/self/")
_SHARED_MEMORY = "/dev/shm/"
"""A folder of files beside the devices."""


def confine(folders: Sequence[Path], log: Path) -> None:
    """Make this process raise an exception when it does what reaches outside some folders.

    Python's audit events report it, and a wrapper of what `torch.save` opens, which has no event.
    What other libraries do without Python is not seen. It holds until the process ends.

    Args:
        folders: Folders in which files may be written.
        log: File that gets a line for each prevented action.
    """
    # Opened before the hook is there, which would prevent it.
    guard = _Guard(folders, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    _watch_torch_save(guard.check)
    sys.addaudithook(guard.hook)


class _Guard:
    """Raises an exception at what reaches outside some folders, and notes it in a file."""

    def __init__(self, folders: Sequence[Path], log: int) -> None:
        self._roots = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)
        self._log = log

    def hook(self, event: str, arguments: tuple[object, ...]) -> None:
        """Look at an audit event."""
        for path in _written(event, arguments):
            self.check(path)
        address = arguments[1] if event == "socket.connect" else None
        # The address of a Unix socket is a path, which stays on this machine.
        if isinstance(address, tuple):
            self._prevent(f"connects to {address[0]!r}")
        if event in _OF_PROGRAMS:
            self._prevent(f"starts {_program(arguments)!r}")

    def check(self, path: object) -> None:
        """Look at a path that is about to be written."""
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor that is open
        # Links inside a folder may lead outside.
        real = os.path.realpath(os.fsdecode(path))
        is_device = real.startswith(_DEVICES) and not real.startswith(_SHARED_MEMORY)
        if not is_device and not f"{real}{os.sep}".startswith(self._roots):
            self._prevent(f"writes {real!r}")

    def _prevent(self, text: str) -> None:
        # Logged as well, because the script may catch the exception.
        os.write(self._log, f"{text}\n".encode(errors="replace"))
        raise PermissionError(f"gradscope prevents that the script {text}")


def _written(event: str, arguments: tuple[object, ...]) -> Iterator[object]:
    """Yield the paths that an event changes."""
    if event == "open":
        path, mode, flags = arguments
        is_changed = isinstance(flags, int) and flags & _WRITING
        if is_changed or (isinstance(mode, str) and set(mode) & set("wax+")):
            yield path
    if event == "os.symlink":
        yield arguments[1]  # what a link leads to stays as it is
    yield from arguments[: _OF_PATHS.get(event, 0)]


def _program(arguments: tuple[object, ...]) -> object:
    return arguments[0] or next(iter(arguments[1:]), "")


def _watch_torch_save(check: Callable[[object], None]) -> None:
    """Check the files that `torch.save` opens without Python."""
    from torch import serialization

    opener = serialization._open_zipfile_writer_file
    own: Callable[..., None] = opener.__init__

    def opened(self: object, name: object, *arguments: object, **named: object) -> None:
        check(name)
        own(self, name, *arguments, **named)

    opener.__init__ = opened  # type: ignore[method-assign]
