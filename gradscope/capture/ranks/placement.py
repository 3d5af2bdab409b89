"""Finds the position of this process in its job, and how parameters are spread over ranks."""

import math
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from gradscope.recording.evidence.ranks import ParameterPlacement, PlacementKind, RankIdentity
from gradscope.target import members


def is_launched() -> bool:
    """Return whether a launcher such as torchrun started this process as one of several ranks."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_in_group() -> bool:
    """Return whether the process group is ready."""
    return dist.is_available() and dist.is_initialized()


def identity(clock: float) -> RankIdentity:
    """Return the identity of this rank, whose process group is ready.

    Args:
        clock: Wall clock when the recording began.
    """
    return RankIdentity(
        rank=dist.get_rank(),
        local_rank=_number("LOCAL_RANK"),
        world_size=dist.get_world_size(),
        backend=str(dist.get_backend()),
        job=_job(),
        host=socket.gethostname(),
        started=time.time(),
        clock=clock,
    )


def _job() -> str:
    environment = os.environ.get
    run, attempt = environment("TORCHELASTIC_RUN_ID"), environment("TORCHELASTIC_RESTART_COUNT")
    address = f"{environment('MASTER_ADDR', '')}:{environment('MASTER_PORT', '')}"
    # torchrun names runs without a rendezvous of their own `none`.
    parts = (run if run != "none" else None, address if address != ":" else None, attempt)
    return " ".join(part for part in parts if part)


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"


def is_fsdp1(module: nn.Module) -> bool:
    """Return whether a module is FSDP's first kind of wrapper."""
    loaded = sys.modules.get(_FSDP1)
    return loaded is not None and isinstance(module, loaded.FullyShardedDataParallel)


def is_fsdp2(module: nn.Module) -> bool:
    """Return whether `fully_shard` was applied to a module."""
    # `fully_shard` replaces the class of a module by one that also derives from `FSDPModule`.
    return hasattr(type(module), "_get_fsdp_state")


def groups_of(module: Any) -> list[Any]:  # noqa: ANN401 - a class that may not be loaded
    """Return the groups of parameters that FSDP2 gathers together for a module."""
    state = module._get_fsdp_state()
    # A list of groups since torch 2.11.
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def own_divisor(module: Any) -> float | None:  # noqa: ANN401 - a class that may not be loaded
    """Return what the script has FSDP2 divide the gradients of a module by; None for the mean."""
    divisors = (getattr(one, "gradient_divide_factor", None) for one in groups_of(module))
    return next((float(divisor) for divisor in divisors if divisor is not None), None)


def waits_for_reduction(module: Any) -> bool:  # noqa: ANN401 - a class that may not be loaded
    """Return whether FSDP2 keeps gradients of a module that it has not reduced yet."""
    for group in groups_of(module):
        for one in getattr(group, "fsdp_params", ()):
            # The public property raises while the parameter is sharded. With another `reduce_dtype`
            # the gradient moves from here to `unsharded_accumulated_grad`.
            whole = getattr(one, "_unsharded_param", None)
            if one.unsharded_accumulated_grad is not None:
                return True
            if whole is not None and whole.grad is not None:
                return True
    return False


class Placements:
    """The placements of the parameters of some modules.

    Args:
        modules: All modules of the script's models.
        reduced: By `id` of a parameter that a DDP model reduces: number of its ranks.
    """

    def __init__(self, modules: Iterable[nn.Module], reduced: Mapping[int, int]) -> None:
        self._reduced = reduced
        self._flat: dict[int, int] = {}
        """By `id` of a parameter of FSDP1: number of ranks that hold the same part."""
        self._shapes: dict[int, tuple[int, ...]] = {}
        """By `id` of a parameter of FSDP1: shape of the whole."""
        for module in modules:
            if is_fsdp1(module):
                self._flat |= dict.fromkeys(map(id, _all_of(module)), _copies_of_fsdp1(module))
                self._shapes |= _shapes_of_fsdp1(module)

    def of(self, parameter: Tensor, index: int) -> ParameterPlacement:
        """Return the placement of a parameter.

        Args:
            parameter: The parameter.
            index: Its index in the recording.
        """
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and hasattr(parameter, "placements"):
            return _of_mesh(parameter, index, mesh)
        copies = self._reduced.get(id(parameter), self._flat.get(id(parameter), 0))
        kind: PlacementKind = "local"
        if id(parameter) in self._reduced:
            kind = "replicated"
        elif id(parameter) in self._flat:
            kind = "sharded"
        return ParameterPlacement(
            parameter=index,
            kind=kind,
            placements=(),
            mesh=(),
            shape=self._shapes.get(id(parameter), tuple(parameter.shape)),
            numel=parameter.numel(),
            is_reduced=id(parameter) in self._reduced,
            copies=copies,
        )


def _of_mesh(parameter: Any, index: int, mesh: Any) -> ParameterPlacement:  # noqa: ANN401 - DTensor
    placements = parameter.placements
    names = mesh.mesh_dim_names or tuple(f"dim{number}" for number in range(mesh.ndim))
    sizes = tuple(mesh.size(number) for number in range(mesh.ndim))
    kind: PlacementKind = "replicated"
    # Each rank of sequence parallelism has the gradient of its part of a sequence.
    of_gradient = getattr(parameter.grad, "placements", ())
    if any(one.is_partial() for one in (*placements, *of_gradient)):
        kind = "partial"
    elif any(not one.is_replicate() for one in placements):
        kind = "sharded"
    alike = (size for size, one in zip(sizes, placements, strict=True) if one.is_replicate())
    return ParameterPlacement(
        parameter=index,
        kind=kind,
        placements=tuple(map(_spelt, placements)),
        mesh=tuple(zip(names, sizes, strict=True)),
        shape=tuple(parameter.shape),
        numel=parameter._local_tensor.numel(),
        is_reduced=False,
        copies=math.prod(alike),
    )


def _spelt(placement: Any) -> str:  # noqa: ANN401 - a placement of DTensor
    if placement.is_replicate():
        return "Replicate()"
    if placement.is_partial():
        return "Partial()"
    dim = getattr(placement, "dim", None)
    return "Shard()" if dim is None else f"Shard({dim})"


def _all_of(module: nn.Module) -> Iterator[Tensor]:
    """Yield the parameters of an FSDP1 module, with the views of its flat tensors."""
    for parameter in members.parameters(module):
        yield parameter
        yield from getattr(parameter, "_params", None) or ()


def _shapes_of_fsdp1(module: Any) -> dict[int, tuple[int, ...]]:  # noqa: ANN401 - may not be loaded
    """Return the whole shapes of the parameters in the flat one of a module."""
    flat = getattr(getattr(module, "_handle", None), "flat_param", None)
    if flat is None:
        return {}
    originals = getattr(flat, "_params", None) or ()
    found = {id(one): tuple(shape) for one, shape in zip(originals, flat._shapes, strict=False)}
    # FSDP1 pads flat tensors to a multiple of the number of ranks.
    return found | {id(flat): tuple(flat._unpadded_unsharded_size)}


def _copies_of_fsdp1(module: Any) -> int:  # noqa: ANN401 - a class that may not be loaded
    strategy = getattr(getattr(module, "sharding_strategy", None), "name", "")
    if strategy == "NO_SHARD":
        return dist.get_world_size(module.process_group)
    # Hybrid sharding: each node has a whole copy, and shards it within the node.
    group = getattr(module, "_inter_node_pg", None)
    return 1 if group is None else dist.get_world_size(group)
