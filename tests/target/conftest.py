import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from gradscope.errors import GradscopeError
from gradscope.target.loading import load_target
from gradscope.target.options import TargetOptions
from gradscope.target.target import Target

HEADER = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


class Workplace:
    """A working directory with a user's files, and the loader that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str, *, header: str = HEADER) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header + dedent(text))
        return path

    def load(self, text: str | None = None, *, spec: str = "model.py", **options) -> Target:
        if text is not None:
            self.write("model.py", text)
        return load_target(spec, TargetOptions(**options))

    def error(self, text: str | None = None, *, spec: str = "model.py", **options):
        """The error of loading and running once."""
        with pytest.raises(GradscopeError) as caught:
            self.load(text, spec=spec, **options).forward()
        return caught.value


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Workplace]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield Workplace(tmp_path)
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]
