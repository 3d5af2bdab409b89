"""Watches a program's imports: of torch, and of modules that gradscope has by the same name."""

import _thread
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
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
        # A copy, because other threads may import meanwhile.
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
            # gradscope's own imports meanwhile, which the program must not get.
            for name in set(sys.modules) - before:
                if name.partition(".")[0] in tops:
                    self._hidden[name] = sys.modules[name]
            for name in self._hidden:
                sys.modules.pop(name, None)
            sys.modules.update(programs)

    def _programs(self) -> Mapping[str, ModuleType]:
        """Return the program's modules that have the names of gradscope's."""
        modules = sys.modules.copy()
        needed = (name for name in _NEEDED - _OF_STARTUP if name in modules)
        tops = {name for name in needed if self._is_programs(name, modules[name])}
        tops.update(name.partition(".")[0] for name in self._hidden)
        if not tops:
            return {}
        return {name: module for name, module in modules.items() if name.partition(".")[0] in tops}

    def _is_programs(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or _entry_of(file) in self._path:
            return False
        spec = PathFinder.find_spec(name, self._path)
        return spec is not None and spec.origin not in (None, file)


@cache
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


_NAME = "torch"


@contextmanager
def after_torch_import(then: Callable[[], None]) -> Iterator[None]:
    """Call a function once, as soon as torch has been imported inside the block.

    The call happens in the importing thread, before the line after the import runs. If another
    finder found torch first, the call happens at the next import.
    """
    if _NAME in sys.modules:
        then()
        yield
        return
    finder = _TorchFinder(then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.remove()


class _TorchFinder:
    """Finds torch through the other finders, and wraps its loader. It removes itself afterwards.

    A request for the location of torch does not load it: libraries look without importing, and
    finders ask each other.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then: Callable[[], None] | None = then
        self._asking = set[int]()
        """Threads that are asking the other finders."""
        self._loadings: list[_Loading] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of torch, None for every other module."""
        if name != _NAME:
            if _is_loaded():
                self._imported()
            return None
        thread = _thread.get_ident()
        if self._then is None or thread in self._asking:
            return None
        # The other finders may ask all finders, this one included.
        self._asking.add(thread)
        try:
            spec = self._found_by_others(path, target)
        finally:
            self._asking.discard(thread)
        if spec is not None and spec.loader is not None:
            self._add_to(spec.loader)
        return spec

    def remove(self) -> None:
        """Remove this finder, and no other."""
        self._then = None
        while self._loadings:
            self._loadings.pop().remove()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _found_by_others(
        self, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        others = (finder for finder in tuple(sys.meta_path) if finder is not self)
        asked = (find for other in others if (find := getattr(other, "find_spec", None)))
        specs = (find(_NAME, path, target) for find in asked)
        return next((spec for spec in specs if spec is not None), None)

    def _add_to(self, loader: object) -> None:
        """Make a loader report when it has loaded torch.

        Only one method is set on the instance, and removed again: code that inspects torch's loader
        later finds it unchanged.
        """
        own = getattr(loader, "__dict__", None)
        # Loaders of the older kind have only the second method.
        name = "exec_module" if hasattr(loader, "exec_module") else "load_module"
        # A loader written in C has no attributes to set.
        if own is None or isinstance(own.get(name), _Loading):
            return
        own[name] = loading = _Loading(getattr(loader, name), own, name, self._imported)
        self._loadings.append(loading)

    def _imported(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            self.remove()
            then()


class _Loading:
    """A loader's method that loads torch and reports it.

    It stays in place if loading fails, for the next attempt.
    """

    def __init__(
        self,
        load: Callable[..., object],
        loader: dict[str, object],
        name: str,
        then: Callable[[], None],
    ) -> None:
        self._load, self._loader, self._name, self._then = load, loader, name, then
        self._before = loader.get(name)

    def __call__(self, module: object) -> object:
        loaded = self._load(module)
        # An archive has one loader for all of its modules, and they may load while torch does.
        if module in (_NAME, sys.modules.get(_NAME)):
            self._then()
        return loaded

    def remove(self) -> None:
        """Restore the loader."""
        if self._loader.get(self._name) is not self:  # other code has wrapped it since
            return
        if self._before is None:
            del self._loader[self._name]
        else:
            self._loader[self._name] = self._before


def _is_loaded() -> bool:
    """Return whether torch has been imported completely."""
    module = sys.modules.get(_NAME)
    # Read from the class: an attribute access would load a lazy module.
    if module is None or type(module).__name__ == "_LazyModule":
        return False
    spec = getattr(module, "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)
