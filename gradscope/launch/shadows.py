"""Gives the program its own modules where gradscope has imported others of the same name."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_OF_STARTUP = frozenset(
    (
        *("__main__", "abc", "codecs", "encodings", "genericpath", "gradscope", "io", "ntpath"),
        *("os", "posixpath", "site", "stat", "sys", "sitecustomize", "usercustomize", "zipimport"),
    )
)
"""What python has imported by itself before a program's first line, and gradscope."""


class Shadows:
    """Modules of gradscope's that the program's first folder would have won over.

    A user's `queue.py` beside the script is what `import queue` means in it.
    """

    def __init__(self) -> None:
        self._hidden: dict[str, ModuleType] = {}

    def hide(self, folder: Path) -> None:
        """Take them out of `sys.modules`.

        Args:
            folder: Where the program's imports are looked for first.
        """
        names = set(_names_in(folder)) - _OF_STARTUP - set(sys.builtin_module_names)
        for name, module in tuple(sys.modules.items()):
            if name.partition(".")[0] in names and not _lies_in(folder, module):
                self._hidden[name] = sys.modules.pop(name)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Have them back inside of the block, for what gradscope itself imports there."""
        programs = {name: sys.modules[name] for name in self._hidden if name in sys.modules}
        sys.modules.update(self._hidden)
        try:
            yield
        finally:
            for name in self._hidden:
                sys.modules.pop(name, None)
            sys.modules.update(programs)


def _names_in(folder: Path) -> Iterator[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix == ".py":
            yield entry.stem
        elif (entry / "__init__.py").exists():
            yield entry.name


def _lies_in(folder: Path, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(folder)
