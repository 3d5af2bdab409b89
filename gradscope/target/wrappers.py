"""Finds the user's module behind the wrapper of `torch.compile`."""

from torch import nn

_INNER = "_orig_mod"


def plain(module: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` wrapped, or the module itself.

    It reads the registered submodules: `getattr` could run a `__getattr__` of the user, which may
    forward the name or raise anything.
    """
    modules = vars(module).get("_modules")
    inner = modules[_INNER] if modules is not None and _INNER in modules else None
    return inner if isinstance(inner, nn.Module) else module
