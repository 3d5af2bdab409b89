"""The configuration of a project, as commands use it."""

from collections.abc import Mapping
from pathlib import Path

from gradscope.check.options import BaselineOptions, Policy
from gradscope.config.document import Source
from gradscope.config.formats import OutputFormat
from gradscope.frozen import dataclass
from gradscope.options.checks import Value
from gradscope.rules.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of the user's file; defaults stand for missing keys."""

    file: Path | None
    """Absolute path of the file; None without a configuration."""
    folder: Path
    """Folder of the file, otherwise the working directory; named targets run there."""
    settings: Settings
    policy: Policy
    baseline: BaselineOptions
    """Baseline options; the file is an absolute path."""
    output_format: OutputFormat | None
    values: Mapping[str, Value]
    """Values of the top level by key, without tables."""
    targets: Mapping[str, Mapping[str, Value]]
    """Values of each target's table, by name and key; `target` is always among them."""
    sources: Mapping[tuple[str, ...], Source]
    """Location of each given key, by its path below `tool.gradscope`."""
