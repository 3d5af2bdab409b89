"""Tables of a run's captured steps: each table of a recording has a counterpart for them."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from gradscope.recording.contents import all_tables, recording_of
from gradscope.recording.meta import HEADER_NAMES, Header, read_header, write_header
from gradscope.recording.record_tables import Codec, table_of
from gradscope.recording.records import CapturedStep
from gradscope.recording.repeated_captures import repeated
from gradscope.recording.table import Record, Row, Table
from gradscope.recording.tables import PARAMETER_STATS

_Parts = Mapping[str, Mapping[int, tuple[Any, ...]]]
"""By name of the table, and number of the captured step: its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStepRow:
    """A captured step, without its records."""

    step: int
    order: int
    header: Header
    same_as: int | None


def _write_header(header: Header) -> tuple[str | None, ...]:
    texts = write_header(header)
    return tuple(texts[name] for name in HEADER_NAMES)


def _read_header(texts: Sequence[str | None]) -> Header:
    return read_header(dict(zip(HEADER_NAMES, texts, strict=True)))


def _column(name: str) -> str:
    return f"{name.rpartition('.')[2]} TEXT"  # a dot would have to be quoted in the sqlite3 shell


CAPTURED_STEPS = table_of(
    CapturedStepRow,
    "look",
    codecs={
        "header": Codec(
            write=_write_header, read=_read_header, columns=tuple(map(_column, HEADER_NAMES))
        )
    },
    columns={"order": "place"},
    later=["same_as", "guessed"],
    is_late=True,
)


@cache
def captured_step_tables_by_name() -> dict[str, Table[Any]]:
    """Return the tables with the records of all captured steps, by name."""
    return {
        table.name: replace(table, name=f"look_{table.name}", owner="look")
        for table in all_tables()
    }


def captured_step_definitions() -> tuple[str, ...]:
    """Return the statements that create the tables of captured steps."""
    return (
        CAPTURED_STEPS.definition,
        *(table.definition for table in captured_step_tables_by_name().values()),
        # For people in the sqlite3 shell; gradscope itself reads the tables.
        """CREATE VIEW look_parameter_gradient AS
           SELECT stat.look, look.step, parameter.name, reach, norm, absolute_maximum, weight_norm,
               reason
           FROM look_parameter_stat AS stat JOIN look ON look.id = stat.look
           JOIN look_parameter AS parameter
               ON parameter.look = ifnull(look.same_as, look.id)
               AND parameter.id = stat.parameter""",
        """CREATE VIEW look_tensor_gradient AS
           SELECT stat.look, look.step, module.path AS module, operation, file, line, norm,
               absolute_maximum, reason
           FROM look_tensor_stat AS stat JOIN look ON look.id = stat.look
           JOIN look_node AS node
               ON node.look = ifnull(look.same_as, look.id) AND node.id = stat.node
           LEFT JOIN look_module_call AS call
               ON call.look = node.look AND call.id = node.module_call
           LEFT JOIN look_module AS module ON module.look = node.look AND module.id = call.module
           LEFT JOIN look_site AS site ON site.look = node.look AND site.id = node.site""",
    )


def read_captured_steps(base: sqlite3.Connection) -> tuple[CapturedStep, ...]:
    """Return the captured steps in a file."""
    rows = CAPTURED_STEPS.records(base)
    if not rows:
        return ()
    parts = {
        name: _by_captured_step(table, base)
        for name, table in captured_step_tables_by_name().items()
    }
    found: list[CapturedStep] = []
    for position, row in enumerate(rows):
        found.append(_look(row, position, parts, found))
    return tuple(found)


def _look(
    row: CapturedStepRow, position: int, parts: _Parts, before: Sequence[CapturedStep]
) -> CapturedStep:
    """Return a captured step; one that repeats another comes after that."""

    def records(table: Table[Any]) -> tuple[Any, ...]:
        return parts[table.name].get(position, ())

    own = recording_of(row.header, records, stats=records(PARAMETER_STATS))
    if row.same_as is None:
        return CapturedStep(step=row.step, order=row.order, recording=own)
    return CapturedStep(
        step=row.step,
        order=row.order,
        recording=repeated(before[row.same_as].recording, own),
        same_as=row.same_as,
        own_evidence=own.evidence,
    )


def _by_captured_step(
    table: Table[Record], base: sqlite3.Connection
) -> dict[int, tuple[Record, ...]]:
    read = _sharing(table)
    return {
        captured: tuple(read([row[1:] for row in rows]))
        for captured, rows in groupby(table.rows(base), key=itemgetter(0))
    }


def _sharing(table: Table[Record]) -> Callable[[Sequence[Row]], Iterable[Record]]:
    """Return a reader of rows that shares equal records, of which captured steps have many."""
    if any(column.endswith(" REAL") for column in table.columns):
        return table.read_many  # measurements differ each time, and 0.0 equals -0.0
    known: dict[Row, Record] = {}

    def read(rows: Sequence[Row]) -> Iterable[Record]:
        new = [row for row in rows if row not in known]
        if new:
            known.update(zip(new, table.read_many(new), strict=True))
        return map(known.__getitem__, rows)

    return read
