"""Reads `[tool.gradscope]` of the nearest pyproject.toml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradscope.check.options import BaselineOptions, Policy
from gradscope.config.document import Source, find_document, working_directory
from gradscope.config.formats import OutputFormat
from gradscope.options.checks import Value
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What the user's file says, and the defaults of what it does not say."""

    file: Path | None
    """Absolute; None where nothing is configured."""
    folder: Path
    """Folder of the file, otherwise the working directory; named targets run there."""
    settings: Settings
    policy: Policy
    baseline: BaselineOptions
    """Baseline options; the file is an absolute path."""
    output_format: OutputFormat | None
    values: Mapping[str, Value]
    """What the top level gives, by key; tables left out."""
    targets: Mapping[str, Mapping[str, Value]]
    """What the table of each target gives, by name and key; always a `target`."""
    sources: Mapping[tuple[str, ...], Source]
    """Location of each given key, by its path below `tool.gradscope`."""


def read_configuration(file: Path | None = None) -> Configuration:
    """Return what a file says, or the nearest pyproject.toml that has `[tool.gradscope]`.

    Args:
        file: Searched from the working directory upward where it is None.

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
    # All rules are imported to check it, which may name them: not where there is none.
    from gradscope.config.checking import checked

    return checked(document)


def configured_settings(file: Path | None = None) -> Settings:
    """Return the settings of the rules of `read_configuration`."""
    return read_configuration(file).settings
