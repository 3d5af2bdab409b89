"""Reads `[tool.gradscope]` of the nearest pyproject.toml."""

from pathlib import Path

from gradscope.check.options import BaselineOptions, Policy
from gradscope.config.configuration import Configuration
from gradscope.config.document import find_document, working_directory
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings


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
