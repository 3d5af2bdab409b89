"""The tables of a recording and the parts that each holds, also for captured steps."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Protocol

from gradscope.frozen import dataclass
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.encoding import (
    GRADIENT_COLUMNS,
    read_gradient,
    read_indices,
    read_names,
    read_numbers,
    read_refs,
    read_shapes,
    write_gradient,
    write_indices,
    write_names,
    write_numbers,
    write_refs,
    write_shapes,
)
from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.evidence.summaries import CosineSummary, SeriesSummary, StepSummary
from gradscope.recording.meta import HEADER_NAMES, Header, read_header, write_header
from gradscope.recording.norm_table import NOT_MEASURED, NormTable
from gradscope.recording.records import (
    CapturedStep,
    EdgeRecord,
    EventRecord,
    InputStat,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
    ParameterRecord,
    ParameterStat,
    Recording,
    Site,
    Skipped,
    StepRecord,
    TensorStat,
)
from gradscope.recording.repetitions import RepeatedSteps, repeated, with_repeated
from gradscope.recording.step_norms import NORMS, has_norms, number_in_sql, read_step_norms
from gradscope.recording.table import BATCH, PLAIN, Codec, Record, Row, Table, table_of, tables_in

_NAMES = Codec(write=write_names, read=read_names)
_INDICES = Codec(write=write_indices, read=read_indices)
_REFS = Codec(write=write_refs, read=read_refs)
_SHAPES = Codec(write=write_shapes, read=read_shapes)
_NUMBERS = Codec(write=write_numbers, read_many=read_numbers)
_GRADIENT = Codec(write=write_gradient, read=read_gradient, columns=GRADIENT_COLUMNS)
PARAMETERS = table_of(ParameterRecord, "parameter", codecs={"aliases": _NAMES}, is_indexed=True)
MODULES = table_of(ModuleRecord, "module", codecs={"aliases": _NAMES}, is_indexed=True)
CALLS = table_of(
    ModuleCallRecord, "module_call", codecs={"inputs": _REFS, "outputs": _REFS}, is_indexed=True
)
SITES = table_of(Site, "site")
NODES = table_of(NodeRecord, "node", codecs={"outputs": _SHAPES}, is_indexed=True)
EDGES = table_of(EdgeRecord, "edge")
CUTS = table_of(
    CutRecord,
    "cut",
    codecs={"parameters": _INDICES, "joins": _INDICES},
)
STEPS = table_of(StepRecord, "step", columns={"index": "step"})
EVENTS = table_of(
    EventRecord,
    "event",
    # Events are the most frequent records: their kinds need no escaping.
    codecs={"kind": PLAIN, "numbers": _NUMBERS},
    columns={"order": "place"},
)
PARAMETER_STATS = table_of(ParameterStat, "parameter_stat", codecs={"gradient": _GRADIENT})
TENSOR_STATS = table_of(
    TensorStat, "tensor_stat", codecs={"gradient": _GRADIENT}, columns={"order": "place"}
)
INPUT_STATS = table_of(InputStat, "input_stat", columns={"position": "place"})
SKIPPED = table_of(Skipped, "skipped")
PARTS: Mapping[str, Table[Any]] = {
    "parameters": PARAMETERS,
    "modules": MODULES,
    "calls": CALLS,
    "sites": SITES,
    "nodes": NODES,
    "edges": EDGES,
    "steps": STEPS,
    "events": EVENTS,
    "parameter_stats": PARAMETER_STATS,
    "tensor_stats": TENSOR_STATS,
    "input_stats": INPUT_STATS,
    "cuts": CUTS,
    "skipped": SKIPPED,
}
"""The tables of a recording's own parts, by the names of these."""
REPEATED_STEPS = table_of(
    RepeatedSteps, "repeated_steps", codecs={"sources": _INDICES}, is_late=True
)


@cache
def evidence_tables() -> dict[type, Table[Any]]:
    """Return the table of every kind of evidence."""
    return {
        kind: table_of(
            kind,
            vars(kind)["table"],
            columns=vars(kind).get("columns"),
            is_late=True,
        )
        for kind in EVIDENCE
    }


def read_parameter_stats(base: sqlite3.Connection) -> Sequence[ParameterStat]:
    """Return the parameter statistics in a file; only norms for a run."""
    is_run = base.execute(f"SELECT 1 FROM {STEPS.name} WHERE kind = 'run' LIMIT 1").fetchone()
    if not is_run:
        return PARAMETER_STATS.records(base)
    numels = dict(base.execute("SELECT id, numel FROM parameter"))
    is_by_step = has_norms(base) and base.execute(f"SELECT 1 FROM {NORMS} LIMIT 1").fetchone()
    return read_step_norms(base, numels) if is_by_step else _read_norms(base, numels)


def _read_norms(base: sqlite3.Connection, numels: Mapping[int, int]) -> NormTable:
    """Return the norms of a run by an earlier version, which wrote a row for each."""
    rows = base.execute(
        f"""SELECT step, parameter, reach, ifnull(norm, :lacking),
                ifnull(weight_norm, :lacking), ifnull(update_norm, :lacking)
            FROM {PARAMETER_STATS.name} ORDER BY id""",
        {"lacking": NOT_MEASURED},
    )
    return NormTable.of_rows(iter(lambda: rows.fetchmany(BATCH), []), numels)


def all_tables() -> tuple[Table[Any], ...]:
    """Return all tables in the order of their creation."""
    return (*PARTS.values(), REPEATED_STEPS, *evidence_tables().values())


_QUERIED = (BatchIdentity, StepSummary, SeriesSummary, CosineSummary)
"""Evidence that people query in the sqlite3 shell, whether or not there is any."""


def first_tables() -> tuple[Table[Any], ...]:
    """Return the tables that every file has; others are created with their first record."""
    return (*PARTS.values(), REPEATED_STEPS, *map(evidence_tables().__getitem__, _QUERIED))


def contents(recording: Recording) -> Iterator[tuple[Table[Any], Sequence[object]]]:
    """Yield the rows of a recording by table, except captured steps and the norms of a run."""
    is_run = any(step.kind == "run" for step in recording.steps)
    for name, table in PARTS.items():
        if table is not PARAMETER_STATS or not is_run:
            yield table, getattr(recording, name)
    tables = evidence_tables()
    by_kind: dict[type, list[object]] = {}
    for record in recording.evidence:
        by_kind.setdefault(type(record), []).append(record)
    yield from ((tables[kind], records) for kind, records in by_kind.items())


class Records(Protocol):
    """Returns the records of a table."""

    def __call__(self, table: Table[Record], /) -> tuple[Record, ...]:
        """Return the records in order."""


def records_in(base: sqlite3.Connection) -> Records:
    """Return a function that returns the records of a table in a file."""
    present = tables_in(base)
    return lambda table: table.records(base) if table.is_read(present) else ()


def recording_of(
    header: Header,
    records: Records,
    stats: Sequence[ParameterStat],
    captured_steps: tuple[CapturedStep, ...] = (),
) -> Recording:
    """Return the recording of the tables' records, except the parameters' statistics."""
    repetitions = records(REPEATED_STEPS)
    tables = {name: one for name, one in PARTS.items() if one is not PARAMETER_STATS}
    parts: dict[str, Any] = {name: records(one) for name, one in tables.items()}
    steps, events = with_repeated(parts.pop("steps"), parts.pop("events"), repetitions)
    evidence = tuple(record for table in evidence_tables().values() for record in records(table))
    if any(isinstance(record, StepSummary) for record in evidence):
        # Repeated steps that stay whole were written behind later ones.
        steps = tuple(sorted(steps, key=attrgetter("index")))
        events = tuple(sorted(events, key=attrgetter("step", "order")))
    return Recording(
        version=header.version,
        command=header.command,
        environment=header.environment,
        target=header.target,
        finished=header.finished,
        **parts,
        steps=steps,
        events=events,
        parameter_stats=stats,
        evidence=evidence,
        captured_steps=captured_steps,
        untimed=tuple(range(one.first, one.first + one.count) for one in repetitions),
    )


_Parts = Mapping[str, "_OfCapturedSteps"]
"""By name of the table: its records."""


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


# The format calls them looks: another name in the file would be another format.
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
        *(one.definition for one in captured_step_tables_by_name().values() if not one.is_late),
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


def captured_steps(base: sqlite3.Connection) -> Iterator[CapturedStep]:
    """Yield the captured steps in a file; only those that later ones repeat stay in memory."""
    rows = CAPTURED_STEPS.records(base)
    if not rows:
        return
    present = tables_in(base)
    parts = {
        name: _OfCapturedSteps(table, base)
        for name, table in captured_step_tables_by_name().items()
        if table.is_read(present)
    }
    # Those of a long run are not all kept: their indices have gaps.
    indices = [row[0] for row in base.execute(f"SELECT id FROM {CAPTURED_STEPS.name} ORDER BY id")]
    positions = {index: position for position, index in enumerate(indices)}
    repeated_ones = {row.same_as for row in rows}
    before: dict[int, CapturedStep] = {}
    for index, row in zip(indices, rows, strict=True):
        found = _captured_step(row, index, parts, before)
        if index in repeated_ones:
            before[index] = found
        yield found if found.same_as is None else replace(found, same_as=positions[found.same_as])


def _captured_step(
    row: CapturedStepRow, index: int, parts: _Parts, before: Mapping[int, CapturedStep]
) -> CapturedStep:
    """Return a captured step; one that repeats another comes after that."""

    def records(table: Table[Any]) -> tuple[Any, ...]:
        return parts[table.name].of(index) if table.name in parts else ()

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


class _OfCapturedSteps:
    """The records of captured steps in a table, which are asked for in their order."""

    def __init__(self, table: Table[Any], base: sqlite3.Connection) -> None:
        self._read = _sharing(table)
        self._groups = groupby(table.rows(base), key=itemgetter(0))
        self._next = next(self._groups, None)

    def of(self, index: int) -> tuple[Any, ...]:
        """Return the records of a captured step."""
        while self._next is not None and self._next[0] < index:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] > index:
            return ()
        found = tuple(self._read([row[1:] for row in self._next[1]]))
        self._next = next(self._groups, None)
        return found


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


VIEWS = (
    f"""CREATE VIEW step_bucket AS
        WITH RECURSIVE places(place) AS (
            SELECT 0 UNION ALL SELECT place + 1 FROM places WHERE place < 9
        )
        SELECT step_summary.first + place * bucket AS first, bucket AS steps, kind, optimizer,
            {number_in_sql("counts")} AS finite, {number_in_sql("broken")} AS broken,
            {number_in_sql("lowest")} AS lowest, {number_in_sql("highest")} AS highest,
            {number_in_sql("mean")} AS mean, {number_in_sql("last")} AS last
        FROM series_summary JOIN step_summary ON step_summary.first = series_summary.first
        JOIN places ON 8 * place < length(counts)
        ORDER BY kind, optimizer, 1""",
    """CREATE VIEW parameter_gradient AS
       SELECT step, parameter.name, reach, norm, absolute_maximum, weight_norm, update_norm, reason
       FROM parameter_stat JOIN parameter ON parameter.id = parameter_stat.parameter
       UNION ALL
       SELECT step, name, reach, norm, NULL, weight_norm, update_norm,
           CASE WHEN norm IS NULL THEN 'it had no gradient' END
       FROM step_gradient""",
    """CREATE VIEW tensor_gradient AS
       SELECT step, module.path AS module, operation, file, line, norm, absolute_maximum, reason
       FROM tensor_stat JOIN node ON node.id = tensor_stat.node
       LEFT JOIN module_call ON module_call.id = node.module_call
       LEFT JOIN module ON module.id = module_call.module
       LEFT JOIN site ON site.id = node.site""",
)
"""Statements that create them."""
