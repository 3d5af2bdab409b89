"""Records how modules use some parameters: without a gradient, or as a table of embeddings."""

import torch
from torch import Tensor, nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.source.lines import Line
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.state import TrainingState

_MOST = 64
"""Maximum number of parameters."""


class ParameterUses:
    """First calls of modules with frozen parameters, such as a teacher's, and of embeddings.

    Args:
        training: State of the training.
        log: Receives the calls.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._seen: set[int] = set()
        self._waiting: list[tuple[str, WeakTensor[Tensor], Line | None]] = []
        """Parameters that have no index yet, and the lines that call their modules."""

    def is_new(self, module: nn.Module) -> bool:
        """Return whether a module's use of its first parameter is worth a record, and new."""
        return (
            len(self._seen) < _MOST
            and id(module) not in self._seen
            and _kind_of(module) is not None
        )

    def see(self, module: nn.Module, line: Line | None) -> None:
        """Note the first call of a module.

        Args:
            module: The module.
            line: The script's line.
        """
        kind, own = _kind_of(module), next(module.parameters(recurse=False), None)
        if kind is not None and own is not None:
            self._seen.add(id(module))
            self._waiting.append((kind, WeakTensor(own), line))

    def settle(self) -> None:
        """Record what was called; parameters have their indices by now."""
        if not self._waiting:
            return
        entries = self._training.gradient_state.entries
        indices = {id(one): e.index for e in entries if (one := e.parameter()) is not None}
        waiting, self._waiting = self._waiting, []
        for kind, reference, line in waiting:
            parameter = reference()
            index = None if parameter is None else indices.get(id(parameter))
            if index is not None:
                self._log.note(kind, self._log.line(line), str(index))
            elif parameter is not None:
                self._waiting.append((kind, reference, line))


def _kind_of(module: nn.Module) -> str | None:
    """Return the event of a module's call, None if it needs no record."""
    # It runs at each call of each module: `parameters()` would build several generators.
    own = next(iter(module._parameters.values()), None)
    if own is None:
        return None
    if not own.requires_grad:
        return "used-without-gradient"
    is_table = isinstance(module, nn.Embedding | nn.EmbeddingBag) and torch.is_grad_enabled()
    return "embedded" if is_table else None
