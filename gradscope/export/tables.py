"""All tables that are exported: gradients, events and findings."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from gradscope.analysis.report import Report
from gradscope.export.scalars import RANKS, STEPS
from gradscope.export.streamed_run import at_its_end
from gradscope.export.table import LOCATION_COLUMNS, ExportTable, Kind, Row, location_cells
from gradscope.recording.norm_table import REACHES, NormTable
from gradscope.recording.records import (
    CapturedStep,
    EventRecord,
    GradientStat,
    ModuleCallRecord,
    ModuleRecord,
    Recording,
)
from gradscope.recording.streaming import RunInFile

_GRADIENT_COLUMNS: tuple[tuple[str, Kind], ...] = (
    ("grad_norm", "number"),
    ("grad_absolute_maximum", "number"),
    ("grad_zero_share", "number"),
    ("grad_nonfinite", "integer"),
)


def _gradient_cells(gradient: GradientStat | None) -> Row:
    if gradient is None:
        return (None, None, None, None)
    return (gradient.norm, gradient.absolute_maximum, gradient.zero_share, gradient.nonfinite)


def _parameter_rows(report: Report) -> Iterator[Row]:
    stats, heads = report.recording.parameter_stats, _heads(report.recording)
    # Runs have millions of rows: they come from columns, without an object for each.
    if isinstance(stats, NormTable):
        yield from _norm_rows(stats, heads)
        return
    for stat in stats:
        yield (
            stat.step,
            *heads[stat.parameter],
            stat.reach,
            *_gradient_cells(stat.gradient),
            stat.weight_norm,
            stat.update_norm,
            stat.reason,
        )


def _streamed_parameter_rows(run: RunInFile) -> Iterator[Row]:
    heads = _heads(run.structure)
    return chain.from_iterable(_norm_rows(norms, heads) for norms in run.norms())


def _heads(run: Recording) -> list[tuple[str, str, int]]:
    """Return the name, the module and the number of elements of each parameter."""
    return [(one.name, run.modules[one.module].path, one.numel) for one in run.parameters]


def _norm_rows(norms: NormTable, heads: Sequence[tuple[str, str, int]]) -> Iterator[Row]:
    """Yield the rows of a run, of which nothing but norms is measured: there are very many."""
    columns = zip(
        norms.steps,
        norms.parameters,
        norms.reaches,
        norms.gradients,
        norms.weights,
        norms.updates,
        strict=True,
    )
    for step, parameter, reach, gradient, weight, update in columns:
        name, module, numel = heads[parameter]
        # The columns hold a negative number where nothing was measured; NaN is a measurement.
        yield (
            step,
            name,
            module,
            numel,
            REACHES[reach],
            None if gradient < 0 else gradient,
            None,
            None,
            None,
            None if weight < 0 else weight,
            None if update < 0 else update,
            None,
        )


PARAMETERS = ExportTable(
    name="parameters",
    columns=(
        ("step", "integer"),
        ("parameter", "text"),
        ("module", "text"),
        ("numel", "integer"),
        ("reach", "text"),
        *_GRADIENT_COLUMNS,
        ("weight_norm", "number"),
        ("update_norm", "number"),
        ("reason", "text"),
    ),
    rows=_parameter_rows,
    streamed=_streamed_parameter_rows,
    needs_order=False,
)


def _tensor_rows(report: Report) -> Iterator[Row]:
    return _rows_of_tensors(report.recording, report.recording.captured_steps)


def _streamed_tensor_rows(run: RunInFile) -> Iterator[Row]:
    return _rows_of_tensors(run.structure, run.captured_steps())


def _rows_of_tensors(recording: Recording, steps: Iterable[CapturedStep]) -> Iterator[Row]:
    for row in _tensors_of(recording):
        yield (None, *row)
    for position, captured in enumerate(steps):
        for row in _tensors_of(captured.recording):
            yield (position, captured.step, *row[1:])


def _tensors_of(recording: Recording) -> Iterator[Row]:
    root = recording.target.root
    for stat in recording.tensor_stats:
        node = recording.nodes[stat.node]
        shape = node.outputs[stat.slot] if stat.slot < len(node.outputs) else None
        call = None if node.module_call is None else recording.calls[node.module_call]
        site = None if node.site is None else recording.sites[node.site]
        yield (
            stat.step,
            stat.order,
            stat.node,
            stat.slot,
            node.operation,
            *_module_cells(call, recording.modules),
            None if shape is None else list(shape.dims),
            None if shape is None else shape.dtype,
            *_gradient_cells(stat.gradient),
            stat.reason,
            *location_cells(site, root),
        )


def _module_cells(
    call: ModuleCallRecord | None, modules: Sequence[ModuleRecord]
) -> tuple[str | None, int | None]:
    return (None, None) if call is None else (modules[call.module].path, call.call)


TENSORS = ExportTable(
    name="tensors",
    columns=(
        ("look", "integer"),
        ("step", "integer"),
        ("order", "integer"),
        ("node", "integer"),
        ("slot", "integer"),
        ("operation", "text"),
        ("module", "text"),
        ("call", "integer"),
        ("shape", "json"),
        ("dtype", "text"),
        *_GRADIENT_COLUMNS,
        ("reason", "text"),
        *LOCATION_COLUMNS,
    ),
    rows=_tensor_rows,
    streamed=_streamed_tensor_rows,
    needs_order=False,
)


def _module_rows(report: Report) -> Iterator[Row]:
    for row in report.modules:
        yield (
            row.path,
            row.class_name,
            None if row.parent is None else report.modules[row.parent].path,
            row.in_model,
            row.training,
            row.parameters,
            row.trainable_parameters,
            row.numel,
            row.grad_norm,
            row.weight_norm,
            *location_cells(row.site, report.target.root),
        )


def _streamed_module_rows(run: RunInFile) -> Iterator[Row]:
    return _module_rows(Report.from_recording(at_its_end(run)))


MODULES = ExportTable(
    name="modules",
    columns=(
        ("module", "text"),
        ("class", "text"),
        ("parent", "text"),
        ("in_model", "flag"),
        ("training", "flag"),
        ("parameters", "integer"),
        ("trainable_parameters", "integer"),
        ("numel", "integer"),
        ("grad_norm", "number"),
        ("weight_norm", "number"),
        *LOCATION_COLUMNS,
    ),
    rows=_module_rows,
    streamed=_streamed_module_rows,
)


def _event_rows(report: Report) -> Iterator[Row]:
    return _rows_of_events(report.recording.events, report.recording)


def _streamed_event_rows(run: RunInFile) -> Iterator[Row]:
    return _rows_of_events(run.events(), run.structure)


def _rows_of_events(events: Iterable[EventRecord], run: Recording) -> Iterator[Row]:
    for event in events:
        yield (
            event.step,
            event.order,
            event.kind,
            event.seconds,
            event.optimizer,
            event.subject or None,
            dict(event.numbers),
            *location_cells(None if event.site is None else run.sites[event.site], run.target.root),
        )


EVENTS = ExportTable(
    name="events",
    columns=(
        ("step", "integer"),
        ("order", "integer"),
        ("event", "text"),
        ("seconds", "number"),
        ("optimizer", "integer"),
        ("subject", "text"),
        ("numbers", "json"),
        *LOCATION_COLUMNS,
    ),
    rows=_event_rows,
    streamed=_streamed_event_rows,
)


def _finding_rows(report: Report) -> Iterator[Row]:
    for finding in report.findings:
        yield (
            finding.rule,
            finding.name,
            finding.severity,
            finding.message,
            finding.step,
            finding.count,
            list(finding.parameters),
            list(finding.modules),
            dict(finding.evidence),
            finding.remedy,
            finding.fingerprint,
            list(finding.ranks),
            *location_cells(finding.location, report.target.root),
        )


FINDINGS = ExportTable(
    name="findings",
    columns=(
        ("rule", "text"),
        ("name", "text"),
        ("severity", "text"),
        ("message", "text"),
        ("step", "integer"),
        ("count", "integer"),
        ("parameters", "json"),
        ("modules", "json"),
        ("evidence", "json"),
        ("remedy", "text"),
        ("fingerprint", "text"),
        ("ranks", "json"),
        *LOCATION_COLUMNS,
    ),
    rows=_finding_rows,
)

TABLES = {
    table.name: table for table in (STEPS, PARAMETERS, TENSORS, MODULES, EVENTS, RANKS, FINDINGS)
}
"""Tables, by name."""
