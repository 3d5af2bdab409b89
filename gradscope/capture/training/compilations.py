"""When torch begins to compile a part of the script."""

import sys
from collections.abc import Callable

from gradscope.capture.compiled import may_run_compiled
from gradscope.capture.untraced import untraced


class Compilations:
    """Tells of torch's compiler before it follows any code, whoever has asked it to.

    `torch.compile` is one way among many: `torch._dynamo.optimize`, `torch.export`, ...

    Args:
        begin: Called when something is about to be compiled, or may have been before.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self._is_known = False

    def start(self) -> None:
        """Begin to listen."""
        if may_run_compiled():
            self._hear(None)
        self.listen()

    def listen(self) -> None:
        """Listen to the compiler, if the script has imported it by now."""
        compiler = None if self._is_known else sys.modules.get("torch._dynamo.callback")
        handler = getattr(compiler, "callback_handler", None)
        # `torch._dynamo.reset` makes it forget who listens.
        if handler is not None and self._hear not in handler.start_callbacks:
            handler.register_start_callback(self._hear)

    def stop(self) -> None:
        """Listen no more."""
        compiler = sys.modules.get("torch._dynamo.callback")
        handler = getattr(compiler, "callback_handler", None)
        if handler is not None and self._hear in handler.start_callbacks:
            handler.remove_start_callback(self._hear)

    @untraced
    def _hear(self, _: object) -> None:
        if not self._is_known:
            self._is_known = True
            self._begin()
