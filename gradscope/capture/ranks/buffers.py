"""Measures buffers and other constants that no wrapper makes equal on all ranks."""

from collections.abc import Iterator
from itertools import islice
from weakref import ref

from torch import Tensor, nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.ranks.placement import is_fsdp1, is_fsdp2
from gradscope.capture.ranks.random_draws import drawn_at
from gradscope.capture.ranks.reducers import Reducers
from gradscope.capture.statistics import norms
from gradscope.capture.training.state import TrainingState
from gradscope.target import members

_MOST = 64
"""Maximum number of buffers of a model."""

_MOST_MODULES = 1_024

_FEWEST = 4
"""Minimum number of elements of a random constant."""


class Buffers:
    """Measures the buffers of FSDP models, and of DDP models that do not broadcast them.

    In a script that reduces gradients itself, those of all models. Constants that modules draw at
    random are measured in these models and in all DDP models, as far as nothing broadcasts them.

    Args:
        training: State of the training.
        log: Receives the norms.
        reducers: The models that DDP wraps.
    """

    def __init__(self, training: TrainingState, log: RankLog, reducers: Reducers) -> None:
        self._training, self._log, self._reducers = training, log, reducers
        self._drawn: dict[str, tuple[ref[nn.Module], str, int | None, float]] | None = None
        """By name of a constant: its module, attribute, line and first norm; None at first."""

    def measure(self, *, is_by_hand: bool) -> None:
        """Record the norms of the buffers.

        Args:
            is_by_hand: Whether the script itself reduced gradients of this step.
        """
        definitions = self._training.models.records.definitions
        models = list(self._models(is_by_hand=is_by_hand))
        self._measure_drawn(models)
        for model in models:
            found = list(islice(_floating(model), _MOST))
            values = norms([tensor for _, _, tensor in found])
            for (module, name, _), norm in zip(found, values, strict=True):
                if norm is not None:
                    made = self._log.line(definitions.modules.get(module))
                    self._log.note("buffer", made, name, {"norm": norm})

    def _measure_drawn(self, models: list[nn.Module]) -> None:
        """Record the norms of constants that modules drew at random."""
        # Found once: the search reads the source of every class.
        if self._drawn is None:
            self._drawn = dict(self._found_drawn(models))
        for name, (owner, attribute, line, first) in self._drawn.items():
            module = owner()
            norm = None if module is None else _norm(_own(module).get(attribute))
            if norm is not None:
                self._log.note("drawn", line, name, {"norm": norm, "first": first})

    def _found_drawn(
        self, models: list[nn.Module]
    ) -> Iterator[tuple[str, tuple[ref[nn.Module], str, int | None, float]]]:
        broadcast = [
            one.module
            for known in self._reducers.known
            if (one := known.model()) is not None and one.broadcast_buffers
        ]
        for model in (*models, *broadcast):
            is_broadcast = any(model is one for one in broadcast)
            for path, module in islice(members.named_modules(model), _MOST_MODULES):
                # DDP broadcasts buffers before each forward, and attributes never.
                plain = vars(module) if is_broadcast else _own(module)
                for attribute, one in list(plain.items()):
                    norm = _norm(one)
                    line = None if norm is None else drawn_at(type(module), attribute)
                    if norm is not None and line is not None:
                        name = f"{path}.{attribute}" if path else attribute
                        yield name, (ref(module), attribute, self._log.line(line), norm)

    def _models(self, *, is_by_hand: bool) -> Iterator[nn.Module]:
        for one in self._reducers.known:
            model = one.model()
            if model is not None and not model.broadcast_buffers:
                yield model.module
        seen: set[int] = set()
        for module in self._training.models.modules:  # a model before its parts
            is_sharded = is_fsdp1(module) or is_fsdp2(module)
            is_bare = is_by_hand and not self._reducers.known
            if id(module) not in seen and (is_sharded or is_bare):
                seen.update(map(id, members.modules(module)))
                yield module


def _floating(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for path, module in members.named_modules(model):
        for name, buffer in members.own_buffers(module):
            if buffer.is_floating_point() and buffer.numel():
                yield module, f"{path}.{name}" if path else name, buffer


def _own(module: nn.Module) -> dict[str, object]:
    """Return the attributes and buffers of a module."""
    return {**vars(module), **dict(members.own_buffers(module))}


def _norm(value: object) -> float | None:
    """Return the norm of a constant that is none of the parameters; None for other values."""
    if type(value) is not Tensor or not value.is_floating_point() or value.requires_grad:
        return None
    return norms([value])[0] if value.numel() >= _FEWEST else None
