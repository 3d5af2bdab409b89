"""The norms that a run's step has measured of its parameters: a row in the file, in columns."""

import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from gradscope.recording.norm_table import CODES, NOT_MEASURED, NormTable
from gradscope.recording.records import Reach

NormRow = tuple[int, Reach, float | None, float | None, float | None]
"""Parameter, reach, and norms of gradient, weight and update; None is not measured."""

SET, NORMS = "norm_set", "step_norms"
"""Tables of the sets of parameters that are measured together, and of their norms by step."""

_BYTES = 8


def number_in_sql(column: str) -> str:
    """Return the number at `place` in a column: its mantissa times a power of two, and its sign.

    Every file holds this text several times, and SQLite parses all of it whenever one is opened.
    """
    digits = f"hex(substr({column}, {_BYTES} * place + 1, {_BYTES}))"
    return f"""(WITH RECURSIVE read(nth, bits) AS (SELECT 1, 0 UNION ALL
            SELECT nth + 1, bits << 4 | instr('123456789ABCDEF', substr({digits}, nth, 1))
            FROM read WHERE nth <= 2 * {_BYTES})
        SELECT CASE WHEN exponent < 2047 THEN sign * iif(exponent,
                (mantissa + (1 << 52)) * pow(2.0, exponent - 1075), mantissa * pow(2.0, -1074))
            WHEN mantissa THEN 'NaN' ELSE sign * 9e999 END
        FROM (SELECT iif(bits < 0, -1, 1) AS sign, bits >> 52 & 2047 AS exponent,
            bits & (1 << 52) - 1 AS mantissa FROM read
            WHERE nth > 2 * {_BYTES} AND {column} IS NOT NULL))"""


def _norm_in_sql(column: str) -> str:
    return f"nullif({number_in_sql(column)}, {NOT_MEASURED})"


_REACH = "CASE {} " + " ".join(f"WHEN '{code:02X}' THEN '{reach}'" for reach, code in CODES.items())

DEFINITIONS = (
    f"""CREATE TABLE {SET} (id INTEGER, place INTEGER, parameter INTEGER, PRIMARY KEY (id, place))
        WITHOUT ROWID""",
    f"""CREATE TABLE {NORMS} (id INTEGER PRIMARY KEY, step INTEGER, "set" INTEGER, reach BLOB,
        norm BLOB, weight_norm BLOB, update_norm BLOB)""",
    # For people in the sqlite3 shell; gradscope itself reads the tables.
    f"""CREATE VIEW step_gradient AS
        SELECT step, parameter.name,
            {_REACH.format("hex(substr(reach, place + 1, 1))")} END AS reach,
            {_norm_in_sql("norm")} AS norm,
            {_norm_in_sql("weight_norm")} AS weight_norm,
            {_norm_in_sql("update_norm")} AS update_norm
        FROM {NORMS} JOIN {SET} ON {SET}.id = "set"
        JOIN parameter ON parameter.id = {SET}.parameter""",
)


def has_norms(base: sqlite3.Connection) -> bool:
    """Return whether a file has these tables; those of earlier versions have not."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return base.execute(query, (NORMS,)).fetchone() is not None


class NormSets:
    """Writes norms: the parameters of steps that measure the same ones are written once."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self._known: dict[tuple[int, ...], int] = {}

    @property
    def parameters(self) -> Mapping[int, tuple[int, ...]]:
        """By index of a set: its parameters."""
        return {index: parameters for parameters, index in self._known.items()}

    def add(self, place: int, step: int, rows: Sequence[NormRow]) -> None:
        """Add the norms of a step as a row; inside a transaction."""
        parameters, reaches, gradients, weights, updates = zip(*rows, strict=True)
        cells = (step, self._set(parameters), bytes(map(CODES.__getitem__, reaches)))
        norms = map(_cell, (gradients, weights, updates))
        self._base.execute(
            f"INSERT INTO {NORMS} VALUES (?, ?, ?, ?, ?, ?, ?)", (place, *cells, *norms)
        )

    @property
    def count(self) -> int:
        """Number of sets."""
        return len(self._known)

    def forget(self, count: int) -> None:
        """Forget the sets that a transaction that failed has written, after this many."""
        while len(self._known) > count:
            # Dicts drop what was added last.
            self._known.popitem()

    def _set(self, parameters: tuple[int, ...]) -> int:
        known = self._known.get(parameters)
        if known is None:
            (last,) = self._base.execute(f"SELECT ifnull(max(id), -1) FROM {SET}").fetchone()
            known = self._known[parameters] = last + 1
            rows = ((known, *one) for one in enumerate(parameters))
            self._base.executemany(f"INSERT INTO {SET} VALUES (?, ?, ?)", rows)
        return known


def _cell(values: Sequence[float | None]) -> bytes | None:
    """Return numbers in the byte order that reads in hexadecimal; None if there is none."""
    if None in values:
        known = [NOT_MEASURED if value is None else value for value in values]
        # NULL for steps that measure no weights: nine of ten.
        if known.count(NOT_MEASURED) == len(known):
            return None
    else:
        known = values  # type: ignore[assignment]
    return _swapped(array("d", known)).tobytes()


def _swapped(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def numbers_of(cell: bytes | None, count: int) -> "array[float]":
    """Return the numbers in a cell, as many as there are parameters.

    Raises:
        ValueError: The cell is damaged.
    """
    if cell is None:
        return array("d", [NOT_MEASURED]) * count
    numbers = _swapped(array("d", cell))
    if len(numbers) != count:
        raise ValueError("norms are damaged")
    return numbers


def parameter_sets(base: sqlite3.Connection) -> dict[int, "array[int]"]:
    """Return the sets of parameters in a file."""
    found: dict[int, array[int]] = {}
    for index, parameter in base.execute(f"SELECT id, parameter FROM {SET} ORDER BY id, place"):
        found.setdefault(index, array("q")).append(parameter)
    return found


def read_step_norms(base: sqlite3.Connection, numels: Mapping[int, int]) -> NormTable:
    """Return all norms in a file."""
    return _norm_table(_rows(base), parameter_sets(base), numels)


def norm_tables(
    base: sqlite3.Connection, numels: Mapping[int, int], steps: int
) -> Iterator[NormTable]:
    """Yield all norms in a file, those of this many steps at a time."""
    rows, sets = _rows(base), parameter_sets(base)
    while some := list(islice(rows, steps)):
        yield _norm_table(some, sets, numels)


_StepRow = tuple[int, int, bytes, bytes | None, bytes | None, bytes | None]
"""Step, set of parameters, their reaches, and norms of gradients, weights and updates."""


def _rows(base: sqlite3.Connection) -> Iterator[_StepRow]:
    return base.execute(
        f'SELECT step, "set", reach, norm, weight_norm, update_norm FROM {NORMS} ORDER BY id'
    )


def _norm_table(
    rows: Iterable[_StepRow], sets: "Mapping[int, array[int]]", numels: Mapping[int, int]
) -> NormTable:
    steps, parameters, reaches = array("q"), array("q"), bytearray()
    columns = array("d"), array("d"), array("d")
    for step, index, reach, *cells in rows:
        measured = sets[index]
        steps.extend(array("q", [step]) * len(measured))
        parameters.extend(measured)
        reaches.extend(reach)
        for column, cell in zip(columns, cells, strict=True):
            column.extend(numbers_of(cell, len(measured)))
    if not len(reaches) == len(steps) or any(code not in CODES.values() for code in set(reaches)):
        raise ValueError("norms are damaged")
    return NormTable(
        steps=steps,
        parameters=parameters,
        reaches=bytes(reaches),
        gradients=columns[0],
        weights=columns[1],
        updates=columns[2],
        numels=numels,
    )


def last_norms(
    base: sqlite3.Connection, first: int, parameters: int
) -> Iterator[tuple[int, int, float | None]]:
    """Yield the latest gradient norm of each parameter since a row, with its step.

    Args:
        base: The file.
        first: First row to read.
        parameters: Number of parameters that there are.
    """
    sets = parameter_sets(base)
    seen: set[int] = set()
    for step, index, cell in base.execute(
        # Backwards, so that mostly one row is enough.
        f'SELECT step, "set", norm FROM {NORMS} WHERE id >= ? ORDER BY id DESC',
        (first,),
    ):
        measured = sets[index]
        for parameter, norm in zip(measured, numbers_of(cell, len(measured)), strict=True):
            if parameter not in seen:
                seen.add(parameter)
                yield step, parameter, None if norm < 0 else norm
        if len(seen) >= parameters:
            return


def rows_by_step(table: NormTable) -> Iterable[tuple[int, list[NormRow]]]:
    """Yield the steps of a table with their rows, as they are written."""
    for step in dict.fromkeys(table.steps):
        rows = table.rows_of(step)
        yield (
            step,
            [
                (
                    stat.parameter,
                    stat.reach,
                    None if stat.gradient is None else stat.gradient.norm,
                    stat.weight_norm,
                    stat.update_norm,
                )
                for stat in map(table.__getitem__, rows)
            ],
        )
