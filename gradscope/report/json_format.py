"""A report as an object of JSON, or as its parts."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.report import json_objects as objects
from gradscope.report.accumulation import accumulation_object
from gradscope.report.clipping.json_objects import clipping_object
from gradscope.report.json_objects import Object
from gradscope.report.run.json_objects import run_lines, run_objects
from gradscope.report.run.ranks_json import ranks_object


def render_json(report: Report) -> str:
    """Return the whole report, one row a line: two reports can be compared by `diff`."""
    return objects.object_text(report_object(report))


def report_object(report: Report) -> Object:
    """Return the whole report."""
    return {
        **objects.meta_object(report),
        "summary": objects.summary_object(report),
        "parameters": [objects.parameter_object(row, report) for row in report.parameters],
        "modules": [objects.module_object(row, report) for row in report.modules],
        "tensors": [objects.tensor_object(row, report) for row in report.tensors],
        "graph": objects.graph_object(report),
        "events": [objects.event_object(event, report) for event in report.events],
        "clipping": clipping_object(report),
        "accumulation": accumulation_object(report),
        **run_objects(report),
        **({} if report.job is None else {"ranks": ranks_object(report)}),
        "training": [objects.other_step_object(step, report) for step in report.training],
        "probes": [objects.other_step_object(step, report) for step in report.probes],
        "skipped": [{"what": item.what, "reason": item.reason} for item in report.skipped],
        "rules": objects.rules_object(report),
        "findings": [objects.finding_object(finding, report) for finding in report.findings],
    }


def report_lines(report: Report) -> Iterator[tuple[str, Object]]:
    """Yield its parts, each object after its kind."""
    yield "meta", objects.meta_object(report)
    yield "summary", objects.summary_object(report)
    yield "graph", objects.graph_object(report)
    for parameter in report.parameters:
        yield "parameter", objects.parameter_object(parameter, report)
    for module in report.modules:
        yield "module", objects.module_object(module, report)
    for tensor in report.tensors:
        yield "tensor", objects.tensor_object(tensor, report)
    for event in report.events:
        yield "event", objects.event_object(event, report)
    yield from run_lines(report)
    ranks = ranks_object(report)
    if ranks is not None:
        yield "ranks", ranks
    yield from _beside(report)
    yield "rules", objects.rules_object(report)
    for finding in report.findings:
        yield "finding", objects.finding_object(finding, report)


def _beside(report: Report) -> Iterator[tuple[str, Object]]:
    """Yield what was run beside the judged step."""
    accumulation = accumulation_object(report)
    if accumulation is not None:
        yield "accumulation", accumulation
    clipping = clipping_object(report)
    if clipping is not None:
        yield "clipping", clipping
    for kind, steps in (("training", report.training), ("probe", report.probes)):
        yield from ((kind, objects.other_step_object(step, report)) for step in steps)
    for item in report.skipped:
        yield "skipped", {"what": item.what, "reason": item.reason}
