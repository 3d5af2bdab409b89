"""Tells when the script has imported torch, which gradscope itself must not do before it.

A script may set what torch reads when it is loaded: `OMP_NUM_THREADS` and the like.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "torch"


@contextmanager
def after_torch_import(then: Callable[[], None]) -> Iterator[None]:
    """Call a function once, as soon as torch has been imported inside of the block.

    It is called in the thread that imports, before the line after the import runs.
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


class _TorchFinder(MetaPathFinder):
    """Finds torch by the other finders, and adds to the loading of it. It is gone afterwards.

    To be asked where torch is, is not to load it: libraries ask without importing it.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where torch is, None for every other module."""
        if name != _NAME:
            return None
        others = (finder for finder in tuple(sys.meta_path) if finder is not self)
        specs = (other.find_spec(name, path, target) for other in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._add_to(spec.loader)
        return spec

    def remove(self) -> None:
        """Leave every other finder as it is."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _add_to(self, loader: Loader) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if module.__name__ != _NAME:  # an archive has one loader for all that is in it
                load(module)
                return
            vars(loader).pop("exec_module", None)
            load(module)  # where it fails, the finder stays for the next attempt
            self.remove()
            self._then()

        # On the instance: whoever looks at the loader of torch later finds it as it was.
        vars(loader)["exec_module"] = exec_module
