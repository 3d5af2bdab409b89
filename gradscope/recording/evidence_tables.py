"""Tables for evidence, derived from the fields of its dataclasses."""

import dataclasses
import json
import types
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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
from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.records import Shape, TensorRef
from gradscope.recording.table import Cells, Row, Table

_COLUMN_TYPES = {int: "INTEGER", bool: "INTEGER", float: "REAL"}


@cache
def evidence_tables() -> dict[type, Table[Any]]:
    """Return the table of every kind of evidence."""
    return {kind: _table(kind) for kind in EVIDENCE}


def _table(kind: Any) -> Table[Any]:  # noqa: ANN401 - any dataclass
    hints = get_type_hints(kind)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    writers = [(name, _writer(hint)) for name, hint in fields.items()]
    readers = [(name, _reader(hint)) for name, hint in fields.items()]

    def write(record: object) -> Cells:
        return tuple(writer(getattr(record, name)) for name, writer in writers)

    def read(row: Row) -> object:
        values = zip(readers, row[1:], strict=True)
        return kind(**{name: reader(cell) for (name, reader), cell in values})

    columns = tuple(
        f"{_quoted(name)} {_COLUMN_TYPES.get(_without_none(hint), 'TEXT')}"
        for name, hint in fields.items()
    )
    later: frozenset[str] = getattr(kind, "later_columns", frozenset())
    return Table(
        name=kind.table, columns=columns, write=write, read=read, later=later, is_late=True
    )


def _quoted(name: str) -> str:
    return f'"{name}"'  # some field names are SQL keywords


def _without_none(hint: Any) -> Any:  # noqa: ANN401 - a type as annotations spell it
    if get_origin(hint) in (Union, types.UnionType):
        rest = [option for option in get_args(hint) if option is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint


def _writer(hint: Any) -> Callable[[Any], Cell]:  # noqa: ANN401
    plain = _without_none(hint)
    if plain is float:
        return write_float
    if plain in (int, bool):
        return lambda value: value
    if plain is str or get_origin(plain) is Literal:
        return lambda value: None if value is None else write_text(value)
    if plain is Shape:
        return lambda value: None if value is None else write_shape(value)
    if plain is TensorRef:
        return write_ref
    return lambda value: None if value is None else json.dumps(_plain(value), allow_nan=False)


def _reader(hint: Any) -> Callable[[Any], object]:  # noqa: ANN401
    plain = _without_none(hint)
    if plain is float:
        read: Callable[[Any], object] = float
    elif plain is bool:
        read = bool
    elif plain in (int, str) or get_origin(plain) is Literal:
        return lambda cell: cell
    elif plain is Shape:
        read = read_shape
    elif plain is TensorRef:
        read = read_ref
    else:
        # Captured steps of a run have many equal values.
        read = lru_cache(maxsize=1_024)(lambda cell: _revived(json.loads(cell), plain))
    return lambda cell: None if cell is None else read(cell)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
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
        fields = zip(dataclasses.fields(hint), value, strict=True)
        return hint(**{field.name: _revived(item, hints[field.name]) for field, item in fields})
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            return tuple(_revived(item, kinds[0]) for item in value)
        return tuple(_revived(item, kind) for item, kind in zip(value, kinds, strict=True))
    return value
