"""Lists the members of a module: modules, parameters and buffers, without code of the script.

Torch's own methods do run some: old scripts override `named_modules` or `named_parameters`, with
fewer arguments than today's, with part of the parameters or with other names. And they fail for a
module whose `__init__` failed, and for a cycle of modules.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_INNER = "_orig_mod"


def named_modules(
    module: nn.Module, *, every_name: bool = False
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules in a module, itself first, each with its path.

    Args:
        module: The outermost module, whose path is empty.
        every_name: Yield a module once for each of its paths, in place of once.
    """
    met: set[int] = set()
    above: list[int] = []
    waiting: list[tuple[int, str, nn.Module]] = [(0, "", module)]
    while waiting:
        depth, path, one = waiting.pop()
        # Back to the parent of this module.
        del above[depth:]
        # With every name, only a module within itself ends the walk.
        if id(one) in (above if every_name else met):
            continue
        met.add(id(one))
        above.append(id(one))
        yield path, one
        children = [
            (depth + 1, f"{path}.{name}" if path else name, child)
            for name, child in named_children(one)
        ]
        # Reversed, because the last one is taken first: modules come as torch yields them.
        waiting += reversed(children)


def modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules in a module, itself first, each once."""
    return (one for _, one in named_modules(module))


def named_children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules directly in a module, with their names."""
    # By type: reading `__class__` of some objects runs their code.
    children = _registered(module, "_modules").items()
    return [(name, child) for name, child in children if issubclass(type(child), nn.Module)]


def own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that a module registered itself, with their names."""
    return [one for one in _registered(module, "_parameters").items() if one[1] is not None]


def own_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the buffers that a module registered itself, with their names."""
    return [one for one in _registered(module, "_buffers").items() if one[1] is not None]


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters in a module, each once, with its first name."""
    met: set[int] = set()
    for path, one in named_modules(module):
        for name, parameter in own_parameters(one):
            if id(parameter) not in met:
                met.add(id(parameter))
                yield f"{path}.{name}" if path else name, parameter


def parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters in a module, each once."""
    return (one for _, one in named_parameters(module))


def named_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers in a module, each once, with its first name."""
    met: set[int] = set()
    for path, one in named_modules(module):
        for name, buffer in own_buffers(one):
            if id(buffer) not in met:
                met.add(id(buffer))
                yield f"{path}.{name}" if path else name, buffer


def _registered(module: nn.Module, kind: str) -> Mapping[str, Any]:
    """Return what a module registered of a kind; an uninitialised module has nothing."""
    registered = vars(module).get(kind)
    if registered is None and issubclass(type(module), torch.jit.ScriptModule):
        registered = getattr(module, kind)  # a traced module reads its inner module's
    return {} if registered is None else registered


def plain(module: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` wrapped, or the module itself.

    It reads the registered submodules: `getattr` could run a `__getattr__` of the user, which may
    forward the name or raise anything.
    """
    modules = vars(module).get("_modules")
    inner = modules[_INNER] if modules is not None and _INNER in modules else None
    return inner if isinstance(inner, nn.Module) else module
