"""All tables that are exported, of events and findings here."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.export.gradients import PARAMETERS, TENSORS
from gradscope.export.ranks import RANKS
from gradscope.export.scalars import STEPS
from gradscope.export.table import PLACE_COLUMNS, ExportTable, Row, place_cells


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
            *place_cells(row.site, report.target.root),
        )


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
        *PLACE_COLUMNS,
    ),
    rows=_module_rows,
)


def _event_rows(report: Report) -> Iterator[Row]:
    sites = report.recording.sites
    for event in report.recording.events:
        yield (
            event.step,
            event.order,
            event.kind,
            event.seconds,
            event.optimizer,
            event.subject or None,
            dict(event.numbers),
            *place_cells(None if event.site is None else sites[event.site], report.target.root),
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
        *PLACE_COLUMNS,
    ),
    rows=_event_rows,
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
            *place_cells(finding.location, report.target.root),
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
        *PLACE_COLUMNS,
    ),
    rows=_finding_rows,
)


TABLES = {
    table.name: table for table in (STEPS, PARAMETERS, TENSORS, MODULES, EVENTS, RANKS, FINDINGS)
}
"""By name."""
