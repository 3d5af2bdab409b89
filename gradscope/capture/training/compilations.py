"""Detects when the script compiles something."""

import sys
from collections.abc import Callable
from typing import Any

from gradscope.capture.compiler import may_run_compiled
from gradscope.capture.training.patches import Function, Patches


class Compilations:
    """Reports everything that is about to be compiled, however it was requested.

    `torch.compile` is one way of many: `torch._dynamo.explain`, `torch.export`, ...

    Args:
        begin: Called before something is compiled.
    """

    def __init__(self, patches: Patches, begin: Callable[[], None]) -> None:
        self._patches, self._begin = patches, begin
        self._listens = False

    def start(self) -> None:
        """Start listening."""
        if may_run_compiled():
            self._begin()
        self.listen()

    def listen(self) -> None:
        """Listen to the compiler, if the script has imported it by now."""
        frames = None if self._listens else sys.modules.get("torch._dynamo.eval_frame")
        context = getattr(frames, "OptimizeContext", None)
        if context is not None:
            self._listens = True
            self._patches.wrap(context, "__init__", self._wrap)

    def _wrap(self, original: Function) -> Function:
        def __init__(context: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
            self._begin()
            original(context, *args, **kwargs)

        return __init__
