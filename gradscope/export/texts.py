"""CSV and JSON Lines: texts that are written row by row."""

import csv
import json
from collections.abc import Iterable
from typing import TextIO

from gradscope.export.table import Cell, ExportTable, Kind, Row
from gradscope.report.objects import finite

_JSON = json.JSONEncoder(allow_nan=False)


def write_csv(table: ExportTable, rows: Iterable[Row], stream: TextIO) -> None:
    """Write rows under a line of names.

    What was not measured is empty; numbers that are not finite are `NaN`, `inf` and `-inf`, as
    pandas and its like read them; lists and objects are JSON.
    """
    writer = csv.writer(_ShortLineEnds(stream), lineterminator="\r\n")
    writer.writerow(table.names)
    special = _special(table)
    for row in rows:
        writer.writerow(_spelled(row, special))


class _ShortLineEnds:
    """Ends lines with a line feed alone, as other tools of the shell expect.

    The csv module cannot be told so: it quotes no carriage return then, and reads it as an end.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        """Write a line that ends with both."""
        return self._stream.write(line[:-2] + "\n")


def _special(table: ExportTable) -> tuple[tuple[int, Kind], ...]:
    """Return the places of the columns that the csv module would not write like this."""
    kinds = enumerate(kind for _, kind in table.columns)
    return tuple((place, kind) for place, kind in kinds if kind in ("number", "flag", "json"))


def _spelled(row: Row, special: Iterable[tuple[int, Kind]]) -> Row:
    cells = list(row)
    for place, kind in special:
        value = cells[place]
        if value is None:
            continue
        if kind == "json":
            cells[place] = json_text(value)
        elif kind == "flag":
            cells[place] = "true" if value else "false"
        elif value != value:
            cells[place] = "NaN"
    return tuple(cells)


def json_text(value: Cell) -> str:
    """Return a value as JSON; numbers that are not finite by name."""
    try:
        return _JSON.encode(value)
    except ValueError:  # something is not finite, which is rare and takes long to look for
        return _JSON.encode(finite(value))


def write_jsonl(table: ExportTable, rows: Iterable[Row], stream: TextIO) -> None:
    """Write an object a row.

    What was not measured is null; numbers that are not finite are `"NaN"`, `"Infinity"` and
    `"-Infinity"`.
    """
    names = table.names
    for row in rows:
        stream.write(json_text(dict(zip(names, row, strict=True))) + "\n")
