"""Parquet, by pyarrow, which is imported for it alone."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.export.table import Cell, ExportTable, Kind, Row
from gradscope.export.texts import json_text

_ROWS = 1 << 16
"""Of a row group; so many are held at a time."""


def check_parquet() -> None:
    """Make sure that Parquet can be written.

    Raises:
        GradscopeError: pyarrow is missing.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise GradscopeError(
            "Parquet is written by pyarrow, which is not installed", help="pip install pyarrow"
        ) from None


def write_parquet(table: ExportTable, rows: Iterable[Row], file: Path) -> None:
    """Write rows to a file.

    What was not measured is null, and NaN is a number; lists and objects are JSON.
    """
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    types = {
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "flag": pyarrow.bool_(),
        "text": pyarrow.string(),
        "json": pyarrow.string(),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in table.columns])
    given = iter(rows)
    with ParquetWriter(file, schema) as writer:
        while group := list(islice(given, _ROWS)):
            columns = [
                pyarrow.array(_column(values, kind), types[kind])
                for values, (_, kind) in zip(zip(*group, strict=True), table.columns, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


def _column(values: tuple[Cell, ...], kind: Kind) -> tuple[Cell, ...]:
    if kind != "json":
        return values
    return tuple(None if value is None else json_text(value) for value in values)
