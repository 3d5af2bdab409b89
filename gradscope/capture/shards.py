"""Maps the weights that FSDP puts in place of its shards during forward and backward.

With FSDP2, a module's parameter is then another object, gathered from all ranks. Its memory is
freed and filled again, and it keeps no gradient. With FSDP1, it is a part of one flat tensor for
many parameters. The trained parameters are the shards.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

_FSDP = "torch.distributed.fsdp"

Shards = dict[int, nn.Parameter]
"""By `id` of a weight in the forward: the shard that it was gathered from."""


def shards_of(modules: Iterable[nn.Module]) -> Shards:
    """Return the shards of the modules that have gathered weights, by these weights."""
    found: Shards = {}
    # Not imported here: the import takes seconds, and without it nothing is sharded.
    if _FSDP not in sys.modules:
        return found
    for module in modules:
        for one in _held_by(module):
            whole, shard = getattr(one, "_unsharded_param", None), one.sharded_param
            if isinstance(whole, Tensor):
                found[id(whole)] = shard
    return found


def trained_by(leaf: Tensor, shards: Shards) -> Sequence[Tensor]:
    """Return the parameters whose gradient a leaf of a graph gets."""
    parts = getattr(leaf, "_params", None) if is_flat(leaf) else None
    return parts or (shards.get(id(leaf), leaf),)


def is_flat(leaf: Tensor) -> bool:
    """Return whether a leaf is the flat tensor that FSDP1 makes of a module's parameters."""
    return bool(getattr(leaf, "_is_flat_param", False))


def parameters_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield a module's parameters, with shards in place of gathered weights."""
    shards = shards_of(module.modules())
    for parameter in module.parameters():
        yield shards.get(id(parameter), parameter)


def _held_by(module: nn.Module) -> Iterator[Any]:
    """Yield what FSDP2 stores about each parameter that a module shards."""
    state_of = getattr(type(module), "_get_fsdp_state", None)
    state = None if state_of is None else state_of(module)
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12
        groups = [getattr(state, "_fsdp_param_group", None)]
    for group in groups:
        yield from getattr(group, "fsdp_params", ())
