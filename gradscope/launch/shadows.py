"""Separates modules of the program and of gradscope that have the same name."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

_OF_STARTUP = frozenset(
    (
        *("__main__", "abc", "codecs", "encodings", "genericpath", "gradscope", "io", "ntpath"),
        *("os", "posixpath", "site", "stat", "sys", "sitecustomize", "usercustomize", "zipimport"),
    )
)
"""Modules that python and gradscope import before a program's first line."""

_NEEDED = sys.stdlib_module_names | {"markdown_it", "mdurl", "pygments", "rich"}
"""Modules that gradscope imports while and after a program runs, besides torch and numpy."""

_PACKAGE = Path(__file__).parents[2]


class Shadows:
    """gradscope's modules that a module in the program's folder would have shadowed.

    With a `queue.py` beside the script, `import queue` in the script means that file.
    """

    def __init__(self) -> None:
        self._hidden: dict[str, ModuleType] = {}
        self._names = frozenset[str]()
        # The first entry is the folder where gradscope was started, or that of its script.
        first, *others = sys.path or [""]
        is_own = sys.flags.safe_path or Path(first) == _PACKAGE
        self._path = [first, *others] if is_own else others

    def hide(self, folder: Path) -> None:
        """Remove them from `sys.modules`.

        Args:
            folder: The first folder on the program's import path.
        """
        names = set(_names_in(folder)) - _OF_STARTUP - set(sys.builtin_module_names)
        self._names = frozenset(names)
        for name, module in tuple(sys.modules.items()):
            if name.partition(".")[0] in names and not _lies_in(folder, module):
                self._hidden[name] = sys.modules.pop(name)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Restore gradscope's modules and import path inside the block."""
        programs = self._programs()
        for name in programs:
            del sys.modules[name]
        sys.modules.update(self._hidden)
        before, path = set(sys.modules), sys.path
        sys.path = list(self._path)
        try:
            yield
        finally:
            sys.path = path
            tops = self._names | {name.partition(".")[0] for name in programs}
            for name in set(sys.modules) - before:
                if name.partition(".")[0] in tops:
                    self._hidden[name] = sys.modules[name]
            for name in self._hidden:
                sys.modules.pop(name, None)
            sys.modules.update(programs)

    def _programs(self) -> Mapping[str, ModuleType]:
        """Return the program's modules that have the names of gradscope's."""
        modules = tuple(sys.modules.items())
        tops = {name: module for name, module in modules if name in _NEEDED - _OF_STARTUP}
        others = {name for name, module in tops.items() if self._is_programs(name, module)}
        hidden = {name.partition(".")[0] for name in self._hidden}
        return {
            name: module for name, module in modules if name.partition(".")[0] in others | hidden
        }

    def _is_programs(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or _entry_of(file) in self._path:
            return False
        spec = PathFinder.find_spec(name, self._path)
        return spec is not None and spec.origin not in (None, file)


def _entry_of(file: str) -> str:
    """Return the entry of `sys.path` that holds a top-level module."""
    path = Path(file)
    return str(path.parents[path.stem == "__init__"])


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
