"""Checks `[tool.gradscope]` of a file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gradscope.check.options import BaselineOptions, Policy
from gradscope.config import keys
from gradscope.config.configuration import Configuration, read_targets
from gradscope.config.document import Document, Source, Table
from gradscope.config.selection import read_settings
from gradscope.options.checks import Value
from gradscope.options.declaration import field_values


def checked(document: Document) -> Configuration:
    """Return the configuration of a file.

    Raises:
        GradscopeError: A key is unknown, or its value is wrong.
    """
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
        policy=Policy(**field_values(Policy, values)),  # type: ignore[arg-type]
        baseline=_baseline(values, document.path.parent, targets),
        output_format=values.get("output-format"),  # type: ignore[arg-type]
        values=values,
        targets=targets,
        sources=dict(_sources(document, (), document.table)),
    )


def _baseline(values: Mapping[str, Value], folder: Path, targets: Iterable[str]) -> BaselineOptions:
    options = BaselineOptions(
        targets=tuple(targets),
        **field_values(BaselineOptions, values),  # type: ignore[arg-type]
    )
    # Paths in a file start at its folder; an absolute one replaces it.
    return options if options.file is None else replace(options, file=folder / options.file)


def _sources(
    document: Document, above: tuple[str, ...], table: Mapping[str, object]
) -> Iterator[tuple[tuple[str, ...], Source]]:
    """Yield the location of each key of a table and below."""
    for key, value in table.items():
        path = (*above, key)
        yield path, document.source(path)
        if isinstance(value, Mapping):
            yield from _sources(document, path, value)
