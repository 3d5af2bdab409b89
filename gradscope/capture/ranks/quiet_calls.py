"""Records which parameters without a gradient a script uses, such as those of a teacher."""

from weakref import ref

from torch import Tensor, nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.source.lines import Line
from gradscope.capture.training.state import TrainingState

_MOST = 64
"""Maximum number of parameters."""


class QuietCalls:
    """Calls of modules without a gradient, whose parameters need none either.

    Args:
        training: State of the training.
        log: Receives the calls.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._seen: set[int] = set()
        self._waiting: list[tuple[ref[Tensor], Line | None]] = []
        """Parameters that have no index yet, and the lines that call their modules."""

    def is_new(self, module: nn.Module) -> bool:
        """Return whether the call of a module is its first one."""
        return id(module) not in self._seen and len(self._seen) < _MOST

    def see(self, module: nn.Module, line: Line | None) -> None:
        """Note the first call of a module.

        Args:
            module: The module.
            line: The script's line.
        """
        own = next(module.parameters(recurse=False), None)
        if own is None or own.requires_grad:
            return
        self._seen.add(id(module))
        self._waiting.append((ref(own), line))

    def settle(self) -> None:
        """Record what was called; parameters have their indices by now."""
        if not self._waiting:
            return
        entries = self._training.gradient_state.entries
        indices = {id(one): e.index for e in entries if (one := e.parameter()) is not None}
        waiting, self._waiting = self._waiting, []
        for reference, line in waiting:
            parameter = reference()
            index = None if parameter is None else indices.get(id(parameter))
            if index is not None:
                self._log.note("used-without-gradient", self._log.line(line), str(index))
            elif parameter is not None:
                self._waiting.append((reference, line))
