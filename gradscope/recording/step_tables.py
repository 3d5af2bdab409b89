"""Tables of events and measurements, step by step."""

import sqlite3
from collections.abc import Iterator, Sequence

from gradscope.recording.encoding import (
    GRADIENT_COLUMNS,
    read_float,
    read_gradient,
    read_numbers,
    read_optional_float,
    write_float,
    write_gradient,
    write_numbers,
    write_text,
)
from gradscope.recording.norm_table import NOT_MEASURED, NormTable
from gradscope.recording.records import (
    EventRecord,
    InputStat,
    ParameterStat,
    Reach,
    Skipped,
    StepRecord,
    TensorStat,
)
from gradscope.recording.table import BATCH, Cells, Row, Table


def _optional_text(text: str | None) -> str | None:
    return None if text is None else write_text(text)


def _write_step(record: StepRecord) -> Cells:
    optimizer = _optional_text(record.optimizer)
    return (record.index, record.kind, record.graph, write_float(record.loss), optimizer)


def _read_step(row: Row) -> StepRecord:
    _, step, kind, graph, loss, optimizer = row
    return StepRecord(
        index=step,
        kind=kind,
        graph=graph,
        loss=read_optional_float(loss),
        optimizer=optimizer,
    )


STEPS: Table[StepRecord] = Table(
    name="step",
    columns=("step INTEGER", "kind TEXT", "graph INTEGER", "loss REAL", "optimizer TEXT"),
    write=_write_step,
    read=_read_step,
)


def _write_event(record: EventRecord) -> Cells:
    return (
        record.step,
        record.order,
        record.kind,
        write_float(record.seconds),
        record.site,
        write_numbers(record.numbers),
        record.optimizer,
        write_text(record.subject),
    )


def _read_events(rows: Sequence[Row]) -> Iterator[EventRecord]:
    decoded = read_numbers(row[6] for row in rows)
    for row, numbers in zip(rows, decoded, strict=True):
        _, step, order, kind, seconds, site, _, optimizer, subject = row
        yield EventRecord(
            step=step,
            order=order,
            kind=kind,
            seconds=read_float(seconds),
            site=site,
            numbers=numbers,
            optimizer=optimizer,
            subject=subject or "",  # files of earlier versions have no such column
        )


EVENTS: Table[EventRecord] = Table(
    name="event",
    columns=(
        "step INTEGER",
        "place INTEGER",
        "kind TEXT",
        "seconds REAL",
        "site INTEGER",
        "numbers TEXT",
        "optimizer INTEGER",
        "subject TEXT",
    ),
    write=_write_event,
    read=lambda row: next(_read_events([row])),
    read_batch=_read_events,
    later=frozenset({"optimizer", "subject"}),
)


def _write_parameter_stat(record: ParameterStat) -> Cells:
    return (
        record.step,
        record.parameter,
        record.reach,
        _optional_text(record.reason),
        write_float(record.weight_norm),
        write_float(record.update_norm),
        *write_gradient(record.gradient),
    )


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


def _read_parameter_stat(row: Row) -> ParameterStat:
    _, step, parameter, reach, reason, weight_norm, update_norm, *gradient = row
    return ParameterStat(
        step=step,
        parameter=parameter,
        reach=reach,
        gradient=read_gradient(gradient),
        reason=reason,
        weight_norm=read_optional_float(weight_norm),
        update_norm=read_optional_float(update_norm),
    )


PARAMETER_STATS: Table[ParameterStat] = Table(
    name="parameter_stat",
    columns=(
        "step INTEGER",
        "parameter INTEGER",
        "reach TEXT",
        "reason TEXT",
        "weight_norm REAL",
        "update_norm REAL",
        *GRADIENT_COLUMNS,
    ),
    write=_write_parameter_stat,
    read=_read_parameter_stat,
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


def _write_tensor_stat(record: TensorStat) -> Cells:
    return (
        record.step,
        record.node,
        record.slot,
        record.order,
        _optional_text(record.reason),
        *write_gradient(record.gradient),
    )


def _read_tensor_stat(row: Row) -> TensorStat:
    _, step, node, slot, order, reason, *gradient = row
    return TensorStat(
        step=step,
        node=node,
        slot=slot,
        order=order,
        gradient=read_gradient(gradient),
        reason=reason,
    )


TENSOR_STATS: Table[TensorStat] = Table(
    name="tensor_stat",
    columns=(
        "step INTEGER",
        "node INTEGER",
        "slot INTEGER",
        "place INTEGER",
        "reason TEXT",
        *GRADIENT_COLUMNS,
    ),
    write=_write_tensor_stat,
    read=_read_tensor_stat,
)


def _write_input_stat(record: InputStat) -> Cells:
    return (record.step, record.call, record.position, write_float(record.norm))


def _read_input_stat(row: Row) -> InputStat:
    _, step, call, position, norm = row
    return InputStat(step=step, call=call, position=position, norm=read_optional_float(norm))


INPUT_STATS: Table[InputStat] = Table(
    name="input_stat",
    columns=("step INTEGER", "call INTEGER", "place INTEGER", "norm REAL"),
    write=_write_input_stat,
    read=_read_input_stat,
)


def _read_skipped(row: Row) -> Skipped:
    _, what, reason = row
    return Skipped(what=what, reason=reason)


SKIPPED: Table[Skipped] = Table(
    name="skipped",
    columns=("what TEXT", "reason TEXT"),
    write=lambda record: (write_text(record.what), write_text(record.reason)),
    read=_read_skipped,
)
