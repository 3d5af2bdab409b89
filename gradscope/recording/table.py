"""A table of a recording's file: follows from the fields of a record, and converts it to rows."""

import dataclasses
import json
import sqlite3
import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gradscope.frozen import dataclass
from gradscope.recording.encoding import (
    Cell,
    read_ref,
    read_shape,
    spell,
    write_float,
    write_ref,
    write_shape,
    write_text,
)
from gradscope.recording.records import Shape, TensorRef

Record = TypeVar("Record")

Cells = tuple[Cell | bytes, ...]

Row = tuple[Any, ...]
"""A row of sqlite3: its index first, then the columns."""

BATCH = 4_096
"""Number of rows read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[Record]):
    """A table whose rows are in the order of the records."""

    name: str
    columns: tuple[str, ...]
    """Name and type of each column, without the index."""
    write: Callable[[Record], Cells]
    """Returns the cells of a record, without its index."""
    read_many: Callable[[Sequence[Row]], Iterable[Record]]
    """Returns the records of rows, at least one; many at once are faster than one by one."""
    later: frozenset[str] = frozenset()
    """Names of columns that files of earlier versions may lack, as those of fields with a default.
    NULL stands for it."""
    is_late: bool = False
    """Whether a file may lack the whole table, as those of earlier versions do, and those without
    such records; it is read as empty.
    """
    owner: str | None = None
    """Name of a first column that says to what a row belongs; indices are counted per owner."""

    @property
    def definition(self) -> str:
        """Statement that creates it; `id` is the record's index, counted from 0."""
        columns = ", ".join(self.columns)
        if self.owner is None:
            return f"CREATE TABLE {self.name} (id INTEGER PRIMARY KEY, {columns})"
        keys = f"{self.owner} INTEGER, id INTEGER"
        key = f"PRIMARY KEY ({self.owner}, id)"
        # Without row ids the rows of an owner lie together, and need no index besides.
        return f"CREATE TABLE {self.name} ({keys}, {columns}, {key}) WITHOUT ROWID"

    @property
    def insertion(self) -> str:
        """Statement that adds a row."""
        cells = len(self.columns) + (1 if self.owner is None else 2)
        return f"INSERT INTO {self.name} VALUES ({', '.join('?' * cells)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, without the index, as SQL writes them."""
        return tuple(map(_column_name, self.columns))

    @property
    def replacement(self) -> str:
        """Statement that rewrites a row."""
        return self.insertion.replace("INSERT", "REPLACE", 1)

    def is_read(self, present: Container[str]) -> bool:
        """Return whether to read it from a file with these tables: one that must exist is read."""
        return not self.is_late or self.name in present

    def rows(self, base: sqlite3.Connection) -> Iterator[Row]:
        """Return the rows in a file, in order; the owner, if there is one, comes first."""
        # SQLite prepares the query here, so that a missing column or table shows at once.
        with suppress(sqlite3.OperationalError):
            return base.execute(self._selection(frozenset()))
        # A file of an earlier version: to ask each table of each file takes a third of reading.
        present = {name for _, name, *_ in base.execute(f"PRAGMA table_info({self.name})")}
        if self.is_late and not present:
            return iter(())
        return base.execute(self._selection(self.later - present))

    def _selection(self, lacking: Set[str]) -> str:
        """Statement that reads the rows in order, columns that a file lacks as NULL."""
        keys = "id" if self.owner is None else f"{self.owner}, id"
        # SQLite takes a quoted name by itself, if no column has it, as a text.
        cells = ("NULL" if name.strip('"') in lacking else f"one.{name}" for name in self.names)
        return f"SELECT {keys}, {', '.join(cells)} FROM {self.name} AS one ORDER BY {keys}"

    def records(self, base: sqlite3.Connection) -> tuple[Record, ...]:
        """Return the records in a file, for a table whose rows have no owners."""
        rows = self.rows(base)
        batches = iter(lambda: list(islice(rows, BATCH)), [])
        return tuple(chain.from_iterable(map(self.read_many, batches)))

    def read(self, row: Row) -> Record:
        """Return the record of one row."""
        (record,) = self.read_many([row])
        return record


_COLUMN_TYPES = {int: "INTEGER", bool: "INTEGER", float: "REAL", bytes: "BLOB"}


def _column_name(column: str) -> str:
    """Return the name in a column's definition, as SQL writes it."""
    return column.split()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How the value of a field becomes cells, and cells a value.

    Without functions, the cell is the value.
    """

    write: Callable[[Any], Any] | None = None
    """Returns the cell of a value; a tuple of cells if there are several columns."""
    read: Callable[[Any], object] | None = None
    """Returns the value of a cell that is not NULL, or of the list of cells."""
    columns: tuple[str, ...] = ()
    """Names and types of several columns; empty for one column with the name of the field."""
    read_many: Callable[[Iterable[Any]], Sequence[object]] | None = None
    """Reads many cells faster than `read` does one by one. Such cells are never NULL."""


PLAIN = Codec()
"""Codec of a value that is a cell."""


def tables_in(base: sqlite3.Connection) -> set[str]:
    """Return the names of a file's tables and views."""
    return {name for (name,) in base.execute("SELECT name FROM sqlite_master")}


def table_of(
    kind: type[Record],
    name: str,
    *,
    codecs: Mapping[str, Codec] | None = None,
    columns: Mapping[str, str] | None = None,
    later: Iterable[str] = (),
    is_late: bool = False,
    is_indexed: bool = False,
) -> Table[Record]:
    """Return the table of a kind of record, with a column per field.

    Args:
        kind: A dataclass.
        name: Name of the table.
        codecs: By field: its codec, where the type does not decide.
        columns: By field: name of its column, if it is another.
        later: Further columns, besides those of fields with a default, that files of earlier
            versions may lack.
        is_late: Whether files of earlier versions lack the whole table.
        is_indexed: Whether the first field, `index`, is the index of the row and has no column.
    """
    renamed = columns or {}
    hints = get_type_hints(kind)
    fields = [
        _Field.of(field, hints[field.name], (codecs or {}).get(field.name), renamed)
        for field in dataclasses.fields(kind)[is_indexed:]  # type: ignore[arg-type]
    ]
    return Table(
        name=name,
        columns=tuple(column for field in fields for column in field.columns),
        write=_writer(fields),
        read_many=_reader(kind, fields, is_indexed=is_indexed),
        later=frozenset(later).union(
            _column_name(one).strip('"')
            for field in fields
            if field.is_later
            for one in field.columns
        ),
        is_late=is_late,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A field of a record, and its columns."""

    name: str
    columns: tuple[str, ...]
    codec: Codec
    has_null: bool
    """Whether the column may hold NULL."""
    absent: object
    """Value of NULL."""
    is_later: bool
    """Whether it has a default, so that files of earlier versions may lack it."""

    @classmethod
    def of(
        cls,
        field: "dataclasses.Field[Any]",
        hint: Any,  # noqa: ANN401 - a type as annotations spell it
        codec: Codec | None,
        renamed: Mapping[str, str],
    ) -> "_Field":
        plain = _without_none(hint)
        # Some names are SQL keywords.
        column = f'"{renamed.get(field.name, field.name)}" {_COLUMN_TYPES.get(plain, "TEXT")}'
        is_optional = type(None) in get_args(hint)
        # An optional field keeps None for NULL, whatever its default is.
        has_default = not is_optional and field.default is not dataclasses.MISSING
        chosen = codec or _codec(plain)
        return cls(
            name=field.name,
            columns=chosen.columns or (column,),
            codec=chosen,
            has_null=is_optional or has_default,
            absent=field.default if has_default else None,
            is_later=field.default is not dataclasses.MISSING,
        )


def _writer(fields: Sequence[_Field]) -> Callable[[object], Cells]:
    writers = {f"write_{field.name}": field.codec.write for field in fields}
    cells = ", ".join(map(_cells, fields))
    return _compiled(f"lambda record: ({cells},)", writers)


def _cells(field: _Field) -> str:
    """Return the expression of a field's cells."""
    if field.codec.write is None:
        return f"record.{field.name}"
    written = f"write_{field.name}(record.{field.name})"
    return f"*{written}" if field.codec.columns else written


def _reader(
    kind: Callable[..., Record], fields: Sequence[_Field], *, is_indexed: bool
) -> Callable[[Sequence[Row]], Iterable[Record]]:
    names = (*(("index",) if is_indexed else ()), *(field.name for field in fields))
    arguments = ", ".join(f"{name}={name}" for name in names)
    made = _compiled(f"lambda {', '.join(names)}: make_record({arguments})", {"make_record": kind})
    converters: list[tuple[int, int, Callable[[Sequence[Any]], Sequence[object]]]] = []
    position = 1
    for field in fields:
        width = len(field.codec.columns) or 1
        converters.append((position, width, _column_reader(field)))
        position += width

    def read_many(rows: Sequence[Row]) -> Iterable[Record]:
        # Column by column: most columns need no conversion, and some decode faster at once.
        cells = list(zip(*rows, strict=True))
        values: list[Sequence[object]] = [cells[0]] if is_indexed else []
        for position, width, convert in converters:
            own = cells[position : position + width]
            values.append(convert(own[0] if width == 1 else list(zip(*own, strict=True))))
        return map(made, *values)

    return read_many


def _compiled(expression: str, names: Mapping[str, object]) -> Callable[..., Any]:
    # As `dataclasses` does it: the writer of a run calls these for every record, and a loop over
    # the fields takes up to a third longer. The expression consists of names of fields.
    function: Callable[..., Any] = eval(expression, dict(names))
    return function


def _column_reader(field: _Field) -> Callable[[Sequence[Any]], Sequence[object]]:
    read, absent = field.codec.read, field.absent
    if field.codec.read_many is not None:
        return field.codec.read_many
    if read is None:
        if absent is None:
            return lambda cells: cells
        return lambda cells: [absent if cell is None else cell for cell in cells]
    if field.has_null and not field.codec.columns:
        return lambda cells: [absent if cell is None else read(cell) for cell in cells]
    return lambda cells: list(map(read, cells))  # fails at NULL: the file is damaged


def _without_none(hint: Any) -> Any:  # noqa: ANN401 - a type as annotations spell it
    if get_origin(hint) in (Union, types.UnionType):
        rest = [option for option in get_args(hint) if option is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint


def _codec(hint: Any) -> Codec:  # noqa: ANN401
    """Return the codec of a type, None left out."""
    if hint is float:
        return Codec(write=write_float, read=float)
    if hint is bool:
        return Codec(read=bool)
    if hint in (int, bytes) or get_origin(hint) is Literal:
        return PLAIN
    if hint is str:
        return Codec(write=_optional(write_text))
    if hint is Shape:
        return Codec(write=_optional(write_shape), read=read_shape)
    if hint is TensorRef:
        return Codec(write=write_ref, read=read_ref)
    return Codec(
        write=_optional(lambda value: json.dumps(_plain(value), allow_nan=False)),
        # Captured steps of a run have many equal values.
        read=lru_cache(maxsize=1_024)(lambda cell: _revived(json.loads(cell), hint)),
    )


def _optional(write: Callable[[Any], Cell]) -> Callable[[Any], Cell]:
    return lambda value: None if value is None else write(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    # JSON has no names for non-finite numbers.
    if isinstance(value, float):
        return spell(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return write_text(value) if isinstance(value, str) else value


def _revived(value: Any, hint: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    hint = _without_none(hint)
    if value is None:
        return None
    if hint is float:
        return float(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        # Files of earlier versions lack the last fields. Their defaults stand for them.
        fields = zip(dataclasses.fields(hint)[: len(value)], value, strict=True)
        return hint(**{field.name: _revived(item, hints[field.name]) for field, item in fields})
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            return tuple(_revived(item, kinds[0]) for item in value)
        return tuple(_revived(item, kind) for item, kind in zip(value, kinds, strict=True))
    return value
