"""Maps the parts of a recording to tables."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from gradscope.recording.meta import Header
from gradscope.recording.records import CapturedStep, ParameterStat, Recording
from gradscope.recording.repeated_steps import with_repeated
from gradscope.recording.table import Record, Table
from gradscope.recording.tables import (
    CALLS,
    CUTS,
    EDGES,
    EVENTS,
    INPUT_STATS,
    MODULES,
    NODES,
    PARAMETER_STATS,
    PARAMETERS,
    REPEATED_STEPS,
    SITES,
    SKIPPED,
    STEPS,
    TENSOR_STATS,
    evidence_tables,
)


def all_tables() -> tuple[Table[Any], ...]:
    """Return all tables in the order of their creation."""
    return (
        PARAMETERS,
        MODULES,
        CALLS,
        SITES,
        NODES,
        EDGES,
        STEPS,
        EVENTS,
        PARAMETER_STATS,
        TENSOR_STATS,
        INPUT_STATS,
        CUTS,
        SKIPPED,
        REPEATED_STEPS,
        *evidence_tables().values(),
    )


def contents(recording: Recording) -> Iterator[tuple[Table[Any], Sequence[object]]]:
    """Yield the rows of a recording by table, except captured steps."""
    yield PARAMETERS, recording.parameters
    yield MODULES, recording.modules
    yield CALLS, recording.calls
    yield SITES, recording.sites
    yield NODES, recording.nodes
    yield EDGES, recording.edges
    yield STEPS, recording.steps
    yield EVENTS, recording.events
    yield PARAMETER_STATS, recording.parameter_stats
    yield TENSOR_STATS, recording.tensor_stats
    yield INPUT_STATS, recording.input_stats
    yield CUTS, recording.cuts
    yield SKIPPED, recording.skipped
    tables = evidence_tables()
    by_kind: dict[type, list[object]] = {}
    for record in recording.evidence:
        by_kind.setdefault(type(record), []).append(record)
    yield from ((tables[kind], records) for kind, records in by_kind.items())


class Records(Protocol):
    """Returns the records of a table."""

    def __call__(self, table: Table[Record], /) -> tuple[Record, ...]:
        """Return the records in order."""


def recording_of(
    header: Header,
    records: Records,
    stats: Sequence[ParameterStat],
    captured_steps: tuple[CapturedStep, ...] = (),
) -> Recording:
    """Return the recording of the tables' records, except the parameters' statistics."""
    steps, events = with_repeated(records(STEPS), records(EVENTS), records(REPEATED_STEPS))
    return Recording(
        version=header.version,
        command=header.command,
        environment=header.environment,
        target=header.target,
        finished=header.finished,
        parameters=records(PARAMETERS),
        modules=records(MODULES),
        calls=records(CALLS),
        sites=records(SITES),
        nodes=records(NODES),
        edges=records(EDGES),
        steps=steps,
        events=events,
        parameter_stats=stats,
        tensor_stats=records(TENSOR_STATS),
        skipped=records(SKIPPED),
        input_stats=records(INPUT_STATS),
        cuts=records(CUTS),
        evidence=tuple(record for table in evidence_tables().values() for record in records(table)),
        captured_steps=captured_steps,
    )
