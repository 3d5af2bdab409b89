"""Low-rank adapters that are frozen before they have learned anything."""

from collections.abc import Iterator
from typing import NamedTuple

from gradscope.recording.records import ParameterRecord
from gradscope.rules.context import RuleContext

_MOST_LEVELS = 3
"""Number of modules, from a weight outwards, that may hold both weights of an adapter."""


class IdleAdapter(NamedTuple):
    """Two frozen weights in a row, of which the second is zero."""

    module: int
    """Module that holds both."""
    parameters: tuple[int, ...]
    """The two weights."""


def idle_adapters(context: RuleContext) -> Iterator[IdleAdapter]:
    """Yield the adapters of a low rank whose second weight is frozen at its first value, zero.

    None if a module of the same class learns: then the frozen ones are those of a copy.
    """
    recording = context.recording
    norms = {stat.parameter: stat.weight_norm for stat in recording.parameter_stats}
    called = {call.module for call in recording.calls}
    learning = {
        recording.modules[module].class_name
        for one in recording.parameters
        if _learns(context, one)
        for module in _around(context, one.module)
    }
    matrices = [
        one
        for one in recording.parameters
        if len(one.shape.dims) == 2 and one.module in called and one.index in norms
    ]
    for second in matrices:
        if norms[second.index] != 0 or _learns(context, second):
            continue
        for module in _around(context, second.module):
            firsts = [
                one
                for one in matrices
                if module in _around(context, one.module)
                # With a first weight of zero, the adapter could not learn even if it were not
                # frozen.
                and norms[one.index]
                and not _learns(context, one)
                and is_of_low_rank(one, second)
            ]
            if firsts:
                if recording.modules[module].class_name not in learning:
                    yield IdleAdapter(module, (firsts[0].index, second.index))
                break


def _learns(context: RuleContext, parameter: ParameterRecord) -> bool:
    learning = frozenset[int]() if context.run is None else context.run.learning
    return parameter.requires_grad or parameter.index in learning


def _around(context: RuleContext, module: int | None) -> Iterator[int]:
    """Yield a module and those that hold it, nearest first."""
    for _ in range(_MOST_LEVELS):
        if module is not None:
            yield module
            module = context.recording.modules[module].parent


def is_of_low_rank(first: ParameterRecord, second: ParameterRecord) -> bool:
    """Return whether two weights lead through a space smaller than both input and output."""
    for inputs, outputs in ((1, 0), (0, 1)):  # as `nn.Linear` has them, and transposed
        rank = first.shape.dims[outputs]
        is_low = rank < min(first.shape.dims[inputs], second.shape.dims[outputs])
        if rank == second.shape.dims[inputs] and is_low:
            return True
    return False
