"""The tables of a recording. Each follows from the fields of its record."""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from gradscope.recording.encoding import (
    GRADIENT_COLUMNS,
    read_gradient,
    read_indices,
    read_names,
    read_numbers,
    read_refs,
    read_shapes,
    write_float,
    write_gradient,
    write_indices,
    write_names,
    write_numbers,
    write_refs,
    write_shapes,
)
from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.norm_table import NOT_MEASURED, NormTable
from gradscope.recording.record_tables import PLAIN, Codec, table_of
from gradscope.recording.records import (
    CutRecord,
    EdgeRecord,
    EventRecord,
    InputStat,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
    ParameterRecord,
    ParameterStat,
    Reach,
    Site,
    Skipped,
    StepRecord,
    TensorStat,
)
from gradscope.recording.repeated_steps import RepeatedSteps
from gradscope.recording.table import BATCH, Cells, Table

_NAMES = Codec(write=write_names, read=read_names)
_INDICES = Codec(write=write_indices, read=read_indices)
_REFS = Codec(write=write_refs, read=read_refs)
_SHAPES = Codec(write=write_shapes, read=read_shapes)
_NUMBERS = Codec(write=write_numbers, read_many=read_numbers)
_GRADIENT = Codec(write=write_gradient, read=read_gradient, columns=GRADIENT_COLUMNS)

PARAMETERS = table_of(
    ParameterRecord, "parameter", codecs={"aliases": _NAMES}, later=["is_shard"], is_indexed=True
)
MODULES = table_of(ModuleRecord, "module", codecs={"aliases": _NAMES}, is_indexed=True)
CALLS = table_of(
    ModuleCallRecord, "module_call", codecs={"inputs": _REFS, "outputs": _REFS}, is_indexed=True
)
SITES = table_of(Site, "site")
NODES = table_of(NodeRecord, "node", codecs={"outputs": _SHAPES}, is_indexed=True)
EDGES = table_of(EdgeRecord, "edge")
CUTS = table_of(
    CutRecord, "cut", codecs={"parameters": _INDICES, "joins": _INDICES}, later=["disabled"]
)
STEPS = table_of(StepRecord, "step", columns={"index": "step"})
EVENTS = table_of(
    EventRecord,
    "event",
    # Events are the most frequent records: their kinds need no escaping.
    codecs={"kind": PLAIN, "numbers": _NUMBERS},
    columns={"order": "place"},
    later=["optimizer", "subject"],
)
PARAMETER_STATS = table_of(ParameterStat, "parameter_stat", codecs={"gradient": _GRADIENT})
TENSOR_STATS = table_of(
    TensorStat, "tensor_stat", codecs={"gradient": _GRADIENT}, columns={"order": "place"}
)
INPUT_STATS = table_of(InputStat, "input_stat", columns={"position": "place"})
SKIPPED = table_of(Skipped, "skipped")
REPEATED_STEPS = table_of(
    RepeatedSteps, "repeated_steps", codecs={"sources": _INDICES}, is_late=True
)


@cache
def evidence_tables() -> dict[type, Table[Any]]:
    """Return the table of every kind of evidence."""
    return {
        kind: table_of(
            kind, vars(kind)["table"], later=vars(kind).get("later_columns", ()), is_late=True
        )
        for kind in EVIDENCE
    }


NORM_COLUMNS = (
    "step",
    "parameter",
    "reach",
    "weight_norm",
    "update_norm",
    "numel",
    "norm",
)
"""Columns of a parameter in a step of a run, in which only norms are measured."""


def norm_cells(
    step: int,
    parameter: int,
    reach: Reach,
    norm: float | None,
    numel: int,
    weight_norm: float | None,
    update_norm: float | None,
) -> Cells:
    """Return the cells of `NORM_COLUMNS`: there are very many, so no records are made."""
    return (
        step,
        parameter,
        reach,
        write_float(weight_norm),
        write_float(update_norm),
        None if norm is None else numel,
        write_float(norm),
    )


def read_parameter_stats(base: sqlite3.Connection) -> Sequence[ParameterStat]:
    """Return the parameter statistics in a file; only norms for a run."""
    is_run = base.execute(f"SELECT 1 FROM {STEPS.name} WHERE kind = 'run' LIMIT 1").fetchone()
    return _read_norms(base) if is_run else PARAMETER_STATS.records(base)


def _read_norms(base: sqlite3.Connection) -> NormTable:
    rows = base.execute(
        f"""SELECT step, parameter, reach, ifnull(norm, :lacking),
                ifnull(weight_norm, :lacking), ifnull(update_norm, :lacking)
            FROM {PARAMETER_STATS.name} ORDER BY id""",
        {"lacking": NOT_MEASURED},
    )
    numels = dict(base.execute("SELECT id, numel FROM parameter"))
    return NormTable.of_rows(iter(lambda: rows.fetchmany(BATCH), []), numels)
