"""Finds the models of parameters, among all objects of Python."""

import gc
from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor, nn


def models_of(parameters: Mapping[int, Tensor]) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield the outermost modules that hold some of the parameters, each with one of these.

    Args:
        parameters: By `id`.
    """
    # By type: to ask some objects for their class runs code of theirs.
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    inner = {id(child) for one in modules for child in _children(one)}
    for module in modules:
        if id(module) not in inner:
            own = (key for one in module.modules() for key in _own(one) if key in parameters)
            first = next(own, None)
            if first is not None:
                yield module, parameters[first]


def _own(module: nn.Module) -> list[int]:
    return [id(one) for one in vars(module).get("_parameters", {}).values() if one is not None]


def _children(module: nn.Module) -> Iterable[object]:
    children: dict[str, object] = vars(module).get("_modules", {})
    return children.values()
