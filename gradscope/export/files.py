"""The files that an export writes: CSV, JSON Lines, Parquet, TensorBoard."""

import csv
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

from gradscope.errors import GradscopeError
from gradscope.export.scalars import Scalars
from gradscope.export.table import Cell, ExportTable, Kind, Row
from gradscope.files import written_whole
from gradscope.report.json.shape import finite


def check_free(files: Sequence[Path], *, force: bool) -> None:
    """Make sure that files can be written, before anything is.

    Raises:
        GradscopeError: One exists and `force` is not set, or is a folder.
    """
    for file in files:
        if file.is_dir():
            raise GradscopeError(f"cannot write '{file}'", cause="it is a directory")
        if file.exists() and not force:
            raise GradscopeError(
                f"'{file}' already exists", help="add --force to overwrite it, or name another file"
            )


@contextmanager
def written(file: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of the file when all is written.

    Raises:
        GradscopeError: It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as path:
            yield path
    except OSError as error:
        raise GradscopeError(f"cannot write '{file}'", cause=error.strerror) from None


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
    """Return the positions of the columns that the csv module would not write like this."""
    kinds = enumerate(kind for _, kind in table.columns)
    return tuple((position, kind) for position, kind in kinds if kind in ("number", "flag", "json"))


def _spelled(row: Row, special: Iterable[tuple[int, Kind]]) -> Row:
    cells = list(row)
    for position, kind in special:
        value = cells[position]
        if value is None:
            continue
        if kind == "json":
            cells[position] = json_text(value)
        elif kind == "flag":
            cells[position] = "true" if value else "false"
        elif value != value:
            cells[position] = "NaN"
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


_ROWS = 1 << 16
"""Rows per row group, which are in memory at a time."""


def check_parquet() -> None:
    """Make sure that Parquet can be written.

    Raises:
        GradscopeError: pyarrow is missing.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise GradscopeError(
            "writing Parquet needs pyarrow, which is not installed", help="pip install pyarrow"
        ) from None


def write_parquet(table: ExportTable, rows: Iterable[Row], file: Path) -> None:
    """Write rows to a file.

    What was not measured is null, and NaN is a number; lists and objects are JSON.
    """
    # pyarrow is optional, and takes long to import.
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


EVENTS_FILE = "events.out.tfevents.gradscope"
"""File name of events: TensorBoard recognizes the part in the middle."""

_VALUES = 128
"""Largest number of values per event; longer events take longer to summarise."""
_EVENTS = 1_024
"""Number of events that are summarised, and written, together."""


def check_tensorboard() -> None:
    """Make sure that events can be written.

    Raises:
        GradscopeError: A package is missing.
    """
    try:
        import tensorboard.compat.proto.event_pb2  # noqa: F401
    except ImportError:
        raise GradscopeError(
            "writing TensorBoard events needs tensorboard, which is not installed",
            help="pip install tensorboard",
        ) from None


def write_events(steps: Iterable[Scalars], file: Path) -> None:
    """Write scalars to a file; their wall time is the seconds since the recording began."""
    with file.open("wb") as stream:
        records = _records(steps)
        while group := list(islice(records, _EVENTS)):
            stream.writelines(_framed(group))


def _records(steps: Iterable[Scalars]) -> Iterator[bytes]:
    """Yield events as they are stored, the first of which tells the version of the format."""
    # TensorBoard is optional, and takes long to import.
    from tensorboard.compat.proto.event_pb2 import Event

    yield Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString()
    for one in steps:
        for start in range(0, len(one.values), _VALUES):
            event = Event(wall_time=one.seconds, step=one.step)
            add = event.summary.value.add
            for tag, value in one.values[start : start + _VALUES]:
                add(tag=tag, simple_value=value)
            # Equal recordings give equal bytes.
            yield event.SerializeToString(deterministic=True)


def _framed(records: Sequence[bytes]) -> Iterator[bytes]:
    """Yield what stands in the file: the length of each record, the record, and their checksums."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    sums = zip(_checksums(lengths), _checksums(records), strict=True)
    for length, record, (of_length, of_record) in zip(lengths, records, sums, strict=True):
        yield length + struct.pack("<I", of_length) + record + struct.pack("<I", of_record)


def _checksums(records: Sequence[bytes]) -> list[int]:
    """Return the masked CRC-32C of each record, of at least four bytes.

    All of them at once, byte by byte: TensorBoard's own function takes ten times as long.
    Zeros before a record leave a sum that begins with 0 as it is; where it is to begin with ones,
    the first four bytes are inverted instead.
    """
    # numpy comes with TensorBoard; the rest of an export does without it.
    import numpy

    longest = max(map(len, records))
    matrix = numpy.zeros((len(records), longest), dtype=numpy.uint8)
    for row, record in zip(matrix, records, strict=True):
        start = longest - len(record)
        row[start:] = numpy.frombuffer(record, dtype=numpy.uint8)
        row[start : start + 4] ^= 0xFF
    table = numpy.array(list(_table()), dtype=numpy.uint32)
    sums = numpy.zeros(len(records), dtype=numpy.uint32)
    # The loop reads columns: as contiguous rows they pass the processor's cache once.
    for column in numpy.ascontiguousarray(matrix.T):
        sums = table[(sums ^ column) & 0xFF] ^ (sums >> 8)
    return [_masked(one ^ 0xFFFFFFFF) for one in sums.tolist()]


def _table() -> Iterator[int]:
    """Yield what each byte adds to a CRC-32C."""
    for byte in range(256):
        for _ in range(8):
            # The reversed polynomial of CRC-32C.
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


def _masked(checksum: int) -> int:
    """Return a checksum as TensorFlow's files hold it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
