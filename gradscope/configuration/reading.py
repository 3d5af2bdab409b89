"""Reads `[tool.gradscope]` of the nearest pyproject.toml."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gradscope.configuration import keys
from gradscope.configuration.document import (
    Document,
    Source,
    Table,
    find_document,
    working_directory,
)
from gradscope.configuration.selection import read_settings
from gradscope.configuration.targets import read_targets
from gradscope.configuration.values import Value
from gradscope.gate.options import BaselineOptions, Policy
from gradscope.report.formats import OutputFormat
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What the user's file says, and the defaults of what it does not say."""

    file: Path | None
    """Absolute; None where nothing is configured."""
    folder: Path
    """Of the file, else the working directory: where the named targets run."""
    settings: Settings
    policy: Policy
    baseline: BaselineOptions
    """Its file is an absolute path."""
    output_format: OutputFormat | None
    values: Mapping[str, Value]
    """What the top level gives, by key; tables left out."""
    targets: Mapping[str, Mapping[str, Value]]
    """What the table of each target gives, by name and key; always a `target`."""
    sources: Mapping[tuple[str, ...], Source]
    """Where each key that is given was written, by its path below `tool.gradscope`."""


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
    return _configuration(document)


def configured_settings(file: Path | None = None) -> Settings:
    """Return the settings of the rules of `read_configuration`."""
    return read_configuration(file).settings


def _configuration(document: Document) -> Configuration:
    table = Table(document=document, path=(), values=document.table)
    table.check_keys((*keys.TOP_LEVEL, *keys.SUBTABLES), "option of gradscope")
    values = {
        key: table.value(key, known.check)
        for key, known in keys.TOP_LEVEL.items()
        if key in table.values
    }
    targets = read_targets(table)
    return Configuration(
        file=document.path,
        folder=document.path.parent,
        settings=read_settings(table, values),
        policy=Policy(**keys.arguments(Policy, values)),  # type: ignore[arg-type]
        baseline=_baseline(values, document.path.parent, targets),
        output_format=values.get("output-format"),  # type: ignore[arg-type]
        values=values,
        targets=targets,
        sources=dict(_sources(document, (), document.table)),
    )


def _baseline(values: Mapping[str, Value], folder: Path, targets: Iterable[str]) -> BaselineOptions:
    options = BaselineOptions(
        targets=tuple(targets),
        **keys.arguments(BaselineOptions, values),  # type: ignore[arg-type]
    )
    return options if options.file is None else replace(options, file=folder / options.file)


def _sources(
    document: Document, above: tuple[str, ...], table: Mapping[str, object]
) -> Iterator[tuple[tuple[str, ...], Source]]:
    """Yield where each key of a table stands, and each key below it."""
    for key, value in table.items():
        path = (*above, key)
        yield path, document.source(path)
        if isinstance(value, Mapping):
            yield from _sources(document, path, value)
