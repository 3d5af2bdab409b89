"""Where a script begins to go through its batches."""

import ast
import sys
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind

from gradscope.capture.compiled import is_traced
from gradscope.capture.training.journal import known
from gradscope.capture.training.patches import Function, Patches
from gradscope.capture.training.places import stem
from gradscope.capture.training.scene import Scene


class Loaders:
    """Watches the iterators of data loaders: an epoch, or an evaluation, begins."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def install(self, patches: Patches) -> None:
        """Watch from now on."""
        patches.wrap(DataLoader, "__iter__", self._wrap)

    def _wrap(self, original: Function) -> Function:
        def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: ANN401, N807
            scene, frame = self._scene, sys._getframe(1)
            # Where another thread makes the steps, it need not know.
            if not (
                is_traced() or scene.pace.is_elsewhere() or scene.repeats("epoch", None, frame)
            ):
                scene.guard.glance(self._note, loader, frame)
            return original(loader)

        return __iter__

    def _note(self, loader: DataLoader[Any], frame: FrameType) -> None:
        place = self._scene.places.of(frame)
        expression = place.expression()
        if isinstance(expression, ast.Call) and expression.args:
            expression = expression.args[0]  # as in `enumerate(loader)`
        name = None if expression is None else stem(expression)
        self._scene.journal.note("epoch", place, known(batches=_length(loader)), subject=name or "")


def _length(loader: DataLoader[Any]) -> int | None:
    # Of an iterable data set a loader remembers that it was asked, and warns later.
    if loader._dataset_kind != _DatasetKind.Map:
        return None
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a sampler of the user's
        return None
