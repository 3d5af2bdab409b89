"""The weights that FSDP puts in place of its shards while a forward or a backward runs.

With FSDP2 a module's parameter is then another object, made of what all ranks hold: its memory is
freed and filled again, and it gets no gradient that stays. With FSDP1 it is a part of one flat
tensor for many. The parameters that are trained are the shards.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

_FSDP = "torch.distributed.fsdp"

Shards = dict[int, nn.Parameter]
"""By `id` of a weight as the forward uses it: the shard that it was made of."""


def shards_of(modules: Iterable[nn.Module]) -> Shards:
    """Return the shards of which modules have made whole weights, by these."""
    found: Shards = {}
    if _FSDP not in sys.modules:
        return found
    for module in modules:
        for one in _held_by(module):
            whole, shard = getattr(one, "_unsharded_param", None), one.sharded_param
            if isinstance(whole, Tensor):
                found[id(whole)] = shard
    return found


def trained_by(leaf: Tensor, shards: Shards) -> Sequence[Tensor]:
    """Return the parameters for which a leaf of a graph gets the gradient."""
    parts = getattr(leaf, "_params", None) if is_flat(leaf) else None
    return parts or (shards.get(id(leaf), leaf),)


def is_flat(leaf: Tensor) -> bool:
    """Return whether a leaf is the flat tensor that FSDP1 makes of a module's parameters."""
    return bool(getattr(leaf, "_is_flat_param", False))


def parameters_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield a module's parameters, the shard in place of a weight that was made of shards."""
    shards = shards_of(module.modules())
    for parameter in module.parameters():
        yield shards.get(id(parameter), parameter)


def _held_by(module: nn.Module) -> Iterator[Any]:
    """Yield what FSDP2 knows of each parameter that a module has been made to shard."""
    state_of = getattr(type(module), "_get_fsdp_state", None)
    state = None if state_of is None else state_of(module)
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # as before torch 2.12
        groups = [getattr(state, "_fsdp_param_group", None)]
    for group in groups:
        yield from getattr(group, "fsdp_params", ())
