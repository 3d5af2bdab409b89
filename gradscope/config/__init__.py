"""The user's configuration: `[tool.gradscope]` in a pyproject.toml."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradscope.config.configuration import (
        Configuration,
        configured_settings,
        plan_targets,
        read_configuration,
    )
    from gradscope.config.selection import with_options

__all__ = [
    "Configuration",
    "configured_settings",
    "plan_targets",
    "read_configuration",
    "with_options",
]

_MODULES = {"with_options": "selection"}


def __getattr__(name: str) -> object:
    # Deferred: some import all rules, which a project without a configuration does not need.
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'configuration')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
