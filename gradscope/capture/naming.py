"""The parameters and modules of a model, each listed once with all of its names."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import OptimizerFamily
from gradscope.recording.records import ModuleRecord, ParameterRecord, Shape
from gradscope.target import members
from gradscope.target.members import plain

_ADAPTIVE = (
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.Adamax,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.SparseAdam,
)
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
    # Without `use_orig_params`, FSDP1 sets `_params` to None, and the flat tensor is what is
    # trained.
    parts = getattr(leaf, "_params", None) if is_flat(leaf) else None
    return parts or (shards.get(id(leaf), leaf),)


def is_flat(leaf: Tensor) -> bool:
    """Return whether a leaf is the flat tensor that FSDP1 makes of a module's parameters."""
    return bool(getattr(leaf, "_is_flat_param", False))


def parameters_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield a module's parameters, with shards in place of gathered weights."""
    shards = shards_of(members.modules(module))
    for parameter in members.parameters(module):
        yield shards.get(id(parameter), parameter)


def _held_by(module: nn.Module) -> Iterator[Any]:
    """Yield what FSDP2 stores about each parameter that a module shards."""
    # `fully_shard` gives a module a class of its own. Asking the module would run its
    # `__getattr__`.
    state_of = getattr(type(module), "_get_fsdp_state", None)
    state = None if state_of is None else state_of(module)
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12
        groups = [getattr(state, "_fsdp_param_group", None)]
    for group in groups:
        yield from getattr(group, "fsdp_params", ())


_COMPILED = "_orig_mod"
"""Attribute under which a compiled module stores the original module."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The parameters and modules of a model, in the order of its records."""

    parameters: list[nn.Parameter]
    modules: list[nn.Module]
    parameter_records: tuple[ParameterRecord, ...]
    module_records: tuple[ModuleRecord, ...]
    shards: Shards
    """Parameters that other tensors replace in the forward."""


def name_model(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> NamedModel:
    """List a model's parameters and modules, each once, with its first name and its aliases.

    Raises:
        GradscopeError: A lazy parameter has no shape before the model's first run.
    """
    modules: dict[nn.Module, list[str]] = {}
    for name, module in members.named_modules(model, every_name=True):
        if plain(module) is module:  # else a wrapper of the module that comes next
            modules.setdefault(module, []).append(_without_compiled(name))
    parameters: dict[int, tuple[nn.Parameter, list[str]]] = {}
    owners: dict[int, int] = {}
    shards = shards_of(modules)
    for position, (module, names) in enumerate(modules.items()):
        for local, parameter in members.own_parameters(module):
            parameter = shards.get(id(parameter), parameter)
            known = parameters.setdefault(id(parameter), (parameter, []))[1]
            known += [f"{name}.{local}" if name else local for name in names]
            owners.setdefault(id(parameter), position)
    groups = _groups(optimizer)
    return NamedModel(
        [parameter for parameter, _ in parameters.values()],
        list(modules),
        tuple(
            _parameter_record(index, parameter, names, owners[key], groups.get(key))
            for index, (key, (parameter, names)) in enumerate(parameters.items())
        ),
        _module_records(modules),
        shards,
    )


def shape_of(tensor: Tensor) -> Shape:
    """Return a tensor's shape and dtype."""
    return Shape(dims=tuple(tensor.shape), dtype=dtype_name(tensor.dtype))


def is_shard(tensor: Tensor) -> bool:
    """Return whether this process holds only a part of a tensor."""
    # Looked up in `sys.modules`: the import of the class takes seconds in undistributed runs.
    placements = getattr(tensor, "placements", ())
    return any(placement.is_shard() for placement in placements)


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name as torch writes it, without the prefix."""
    return str(dtype).removeprefix("torch.")


def _without_compiled(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def _groups(optimizer: torch.optim.Optimizer | None) -> dict[int, int]:
    if optimizer is None:
        return {}
    return {
        id(parameter): number
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }


def _parameter_record(
    index: int, parameter: nn.Parameter, names: list[str], owner: int, group: int | None
) -> ParameterRecord:
    unique = list(dict.fromkeys(names))
    if is_lazy(parameter):
        raise GradscopeError(
            f"the lazy parameter `{unique[0]}` has no shape yet",
            help="run the model once on a batch before inspecting it",
        )
    return ParameterRecord(
        index=index,
        name=unique[0],
        aliases=tuple(unique[1:]),
        module=owner,
        shape=shape_of(parameter),
        device=str(parameter.device),
        numel=parameter.numel(),
        requires_grad=parameter.requires_grad,
        optimizer_group=group,
        is_shard=is_shard(parameter),
    )


def _module_records(modules: dict[nn.Module, list[str]]) -> tuple[ModuleRecord, ...]:
    by_path: dict[str, int] = {}
    for position, names in enumerate(modules.values()):
        for name in names:
            by_path.setdefault(
                name, position
            )  # a module without a name is not confused with its parent
    records = []
    for index, (module, names) in enumerate(modules.items()):
        unique = list(dict.fromkeys(names))
        path = unique[0]
        parent = by_path.get(path.rpartition(".")[0]) if path else None
        records.append(
            ModuleRecord(
                index=index,
                path=path,
                aliases=tuple(unique[1:]),
                class_name=type(module).__name__,
                parent=parent,
                in_model=True,
                training=module.training,
            )
        )
    return tuple(records)


def optimizer_family(optimizer: torch.optim.Optimizer) -> OptimizerFamily:
    """Return what an optimizer, or one that is derived from it or named like it, does."""
    name = type(optimizer).__name__.lower()
    if isinstance(optimizer, torch.optim.SGD) or "sgd" in name:
        return "sgd"
    return "adaptive" if isinstance(optimizer, _ADAPTIVE) or "adam" in name else "other"
