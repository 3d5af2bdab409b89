"""The user's configuration: `[tool.gradscope]` in a pyproject.toml."""

from gradscope.configuration.planning import plan_targets
from gradscope.configuration.reading import (
    Configuration,
    configured_settings,
    read_configuration,
)
from gradscope.configuration.selection import with_options

__all__ = [
    "Configuration",
    "configured_settings",
    "plan_targets",
    "read_configuration",
    "with_options",
]
