"""Recording starts however scripts and libraries import torch."""

from textwrap import dedent

import pytest

from tests.nightly import some_on_push

ASKING = """
    import importlib.util, sys
    class Asking:
        is_asking = False
        def find_spec(self, name, path=None, target=None):
            if name != "torch" or self.is_asking:
                return None
            self.is_asking = True
            try:
                importlib.util.find_spec(name)
                return importlib.util.find_spec(name)
            finally:
                self.is_asking = False
"""

WAYS = {
    "a finder behind it asks": f"""{ASKING}
    sys.meta_path.insert(1, Asking())
    import torch
    """,
    "a finder before it asks": f"""{ASKING}
    sys.meta_path.insert(0, Asking())
    import torch
    """,
    "asked several times": """
    import importlib.util
    for _ in range(3):
        importlib.util.find_spec("torch")
    import torch
    """,
    "by one loader that is asked for twice": """
    import importlib.util, sys
    spec = importlib.util.find_spec("torch")
    class Known:
        def find_spec(self, name, path=None, target=None):
            return spec if name == "torch" else None
    sys.meta_path.insert(1, Known())
    importlib.util.find_spec("torch")
    import torch
    """,
    "lazily": """
    import importlib.util, sys
    spec = importlib.util.find_spec("torch")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    torch = sys.modules["torch"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch)
    import further
    """,
    "in a thread": """
    import importlib, threading
    thread = threading.Thread(target=importlib.import_module, args=("torch",))
    thread.start()
    thread.join()
    import torch
    """,
    "by a module of it": "import torch.nn",
    "and once more": """
    import importlib
    import torch
    before = torch.watch
    importlib.reload(torch)
    torch.watch = before
    """,
    "by a loader without a dictionary": """
    import importlib.util, sys
    class Loader:
        __slots__ = ("inner",)
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            self.inner.exec_module(module)
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                sys.meta_path.remove(self)
                loader = Loader()
                spec = importlib.machinery.PathFinder.find_spec(name, path)
                loader.inner, spec.loader = spec.loader, loader
                return spec
    sys.meta_path.insert(1, Finder())
    import torch
    import further
    """,
    "by a finder that asks nobody": """
    import importlib.machinery, sys
    class Finder(importlib.machinery.PathFinder):
        pass
    sys.meta_path.insert(0, Finder)
    import torch
    sys.meta_path.remove(Finder)
    import further
    """,
    "by a loader of the older kind": """
    import importlib.machinery, sys, types
    class Loader:
        def __init__(self, spec):
            self.spec = spec
        def create_module(self, spec):
            return None
        def load_module(self, name):
            module = sys.modules[name] = types.ModuleType(name)
            module.__spec__, module.__path__ = self.spec, self.spec.submodule_search_locations
            exec(self.spec.loader.get_code(name), vars(module))
            return module
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                found = importlib.machinery.PathFinder.find_spec(name, path)
                spec = importlib.machinery.ModuleSpec(name, Loader(found), is_package=True)
                return spec
    sys.meta_path.insert(1, Finder())
    import warnings
    warnings.simplefilter("ignore")
    import torch
    """,
}


@pytest.mark.parametrize("way", some_on_push(WAYS, 3))
def test_torch_is_seen_however_it_is_imported(way, gradscope, script, write):
    script(f"{dedent(WAYS[way])}\ntorch.train(2)\nprint('trained')")
    write("torch/nn.py", "")
    write("further.py", "")
    done = gradscope("run", "train.py")
    assert done.stdout == "trained\n", done.stderr
    assert done.stderr.count("note: wrote") == 1
    assert "bug" not in done.stderr
