"""The configuration of a project, read from `[tool.gradscope]` of the nearest pyproject.toml."""

from collections.abc import Mapping
from pathlib import Path

from gradscope.check.options import BaselineOptions, Policy
from gradscope.config.document import Source, find_document, working_directory
from gradscope.config.formats import OutputFormat
from gradscope.frozen import dataclass
from gradscope.options.checks import Value
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings


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


def read_configuration(file: Path | None = None) -> Configuration:
    """Return the configuration of a file, or of the nearest pyproject.toml with `[tool.gradscope]`.

    Args:
        file: The file; None searches from the working directory upward.

    Raises:
        GradscopeError: The file cannot be read or has no such table; a key is unknown, or its
            value is wrong.
    """
    document = find_document(file)
    if document is None:
        return Configuration(
            file=None,
            folder=working_directory(),
            settings=DEFAULT_SETTINGS,
            policy=Policy(),
            baseline=BaselineOptions(),
            output_format=None,
            values={},
            targets={},
            sources={},
        )
    # Deferred: it imports all rules, which the file may name.
    from gradscope.config.checking import checked

    return checked(document)


def configured_settings(file: Path | None = None) -> Settings:
    """Return the settings of the rules of `read_configuration`."""
    return read_configuration(file).settings
