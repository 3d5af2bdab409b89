"""Detects the script's import of torch. gradscope itself must not import torch before it.

A script may set environment variables that torch reads when loaded, such as `OMP_NUM_THREADS`.
"""

import _thread
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

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
