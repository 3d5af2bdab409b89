"""A report as one JSON object, by `gradscope/schemas/report-1.json`."""

import json

from gradscope.analysis.report import Report
from gradscope.report import objects
from gradscope.report.accumulation import accumulation_object
from gradscope.report.clipping.objects import clipping_object
from gradscope.report.objects import Json, Object
from gradscope.report.run.objects import run_objects


def render_json(report: Report) -> str:
    """Return the whole report, one row a line: two reports can be compared by `diff`."""
    parts = ",\n".join(f" {_compact(key)}: {_part(part)}" for key, part in _object(report).items())
    return f"{{\n{parts}\n}}"


def _object(report: Report) -> Object:
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
        "training": [objects.other_step_object(step, report) for step in report.training],
        "probes": [objects.other_step_object(step, report) for step in report.probes],
        "skipped": [{"what": item.what, "reason": item.reason} for item in report.skipped],
        "rules": objects.rules_object(report),
        "findings": [objects.finding_object(finding, report) for finding in report.findings],
    }


def _part(part: Json) -> str:
    if not isinstance(part, list) or not part:
        return _compact(part)
    rows = ",\n".join(f"  {_compact(row)}" for row in part)
    return f"[\n{rows}\n ]"


def _compact(value: Json) -> str:
    return json.dumps(objects.finite(value), allow_nan=False)
