"""The parts of a report as JSON objects; their keys are an interface, kept by the schema."""

import json
from collections.abc import Iterable, Mapping, Sequence

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleCallRow, ModuleRow, OtherStep, ParameterRow, TensorRow
from gradscope.analysis.view import shown_path
from gradscope.recording.encoding import spell
from gradscope.recording.finding import Finding
from gradscope.recording.records import EventRecord, GradientStat, Site

SCHEMA_VERSION = "1.0"

Json = Mapping[str, "Json"] | Sequence["Json"] | str | float | bool | None
Object = dict[str, Json]


def finite(value: Json) -> Json:
    """Return the value with NaN and infinities, which JSON cannot hold, as their names."""
    if isinstance(value, float):
        return spell(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(item) for item in value]
    return value


def object_text(whole: Object) -> str:
    """Return an object as JSON, a row of its lists a line: two can be compared by `diff`."""
    parts = ",\n".join(f" {_compact(key)}: {_part(part)}" for key, part in whole.items())
    return f"{{\n{parts}\n}}"


def lines_text(lines: Iterable[tuple[str, Object]]) -> str:
    """Return objects as JSON, each on a line of its own that `kind` names."""
    return "\n".join(_compact({"kind": kind, **part}) for kind, part in lines)


def _part(part: Json) -> str:
    if not isinstance(part, list) or not part:
        return _compact(part)
    rows = ",\n".join(f"  {_compact(row)}" for row in part)
    return f"[\n{rows}\n ]"


def _compact(value: Json) -> str:
    return json.dumps(finite(value), allow_nan=False)


def meta_object(report: Report) -> Object:
    """Return what was inspected, where, and by which version."""
    environment, target = report.environment, report.target
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "gradscope", "version": report.version},
        "command": report.command,
        "environment": {
            "python": environment.python,
            "torch": environment.torch,
            "platform": environment.platform,
            "device": environment.device,
            "threads": environment.threads,
        },
        "target": {
            "name": target.name,
            "model": target.model,
            "batch": target.batch,
            "loss": target.loss,
            "optimizer": target.optimizer,
            "mode": target.mode,
            "seed": target.seed,
            "synthetic_loss": target.synthetic_loss,
        },
    }


def summary_object(report: Report) -> Object:
    """Return the report in numbers."""
    summary = report.summary
    return {
        "step": summary.step,
        "loss": summary.loss,
        "grad_norm": summary.grad_norm,
        "parameters": {
            "total": summary.parameters,
            "requires_grad": summary.requires_grad,
            "gradient": summary.reached,
            "zero": summary.zero,
            "none": summary.none,
            "frozen": summary.frozen,
            "unknown": summary.unknown,
            "nonfinite": summary.nonfinite_parameters,
            "numel": summary.numel,
            "trainable_numel": summary.trainable_numel,
        },
        "tensors": {
            "measured": summary.tensors,
            "unmeasured": summary.unmeasured_tensors,
            "views": summary.views,
            "nonfinite": summary.nonfinite_tensors,
        },
        "skipped": summary.skipped,
        "findings": len(report.findings),
    }


def parameter_object(row: ParameterRow, report: Report) -> Object:
    """Return a parameter and its gradient."""
    return {
        "name": row.name,
        "aliases": row.aliases,
        "module": row.module,
        "location": location_object(row.site, report),
        "shape": row.shape,
        "dtype": row.dtype,
        "device": row.device,
        "numel": row.numel,
        "requires_grad": row.requires_grad,
        "reach": row.reach,
        "reason": row.reason,
        "gradient": _gradient(row.grad),
        "weight_norm": row.weight_norm,
        "grad_to_weight": row.grad_to_weight,
        "update_norm": row.update_norm,
        "update_to_weight": row.update_to_weight,
        "optimizer_group": row.optimizer_group,
        "depth": row.depth,
    }


def _gradient(gradient: GradientStat | None) -> Object | None:
    if gradient is None:
        return None
    return {
        "norm": gradient.norm,
        "rms": gradient.rms,
        "absolute_maximum": gradient.absolute_maximum,
        "zero_share": gradient.zero_share,
        "nonfinite": gradient.nonfinite,
        "numel": gradient.numel,
        "sampled": gradient.sampled,
        "lowest_exponent": gradient.lowest_exponent,
        "magnitudes": gradient.magnitudes,
    }


def module_object(row: ModuleRow, report: Report) -> Object:
    """Return a module, its sums and its calls."""
    return {
        "path": row.path,
        "aliases": row.aliases,
        "class": row.class_name,
        "parent": None if row.parent is None else report.modules[row.parent].path,
        "in_model": row.in_model,
        "training": row.training,
        "location": location_object(row.site, report),
        "parameters": row.parameters,
        "trainable_parameters": row.trainable_parameters,
        "own_parameters": row.own_parameters,
        "numel": row.numel,
        "own_numel": row.own_numel,
        "grad_norm": row.grad_norm,
        "weight_norm": row.weight_norm,
        "calls": [_call(call, report) for call in row.calls],
    }


def _call(call: ModuleCallRow, report: Report) -> Object:
    return {
        "call": call.call,
        "location": location_object(call.site, report),
        "output_grad_norm": call.output_grad_norm,
        "input_grad_norm": call.input_grad_norm,
        "gain": call.gain,
    }


def location_object(site: Site | None, report: Report) -> Object | None:
    """Return a line of code; None without one."""
    if site is None:
        return None
    return {
        "file": shown_path(site.file, report.target.root),
        "line": site.line,
        "function": site.function,
        "source": site.source,
    }


def tensor_object(row: TensorRow, report: Report) -> Object:
    """Return a tensor of the forward and the gradient with respect to it."""
    return {
        "operation": row.operation,
        "node_kind": row.kind,
        "module": row.module,
        "call": row.call,
        "location": location_object(row.site, report),
        "shape": row.shape,
        "dtype": row.dtype,
        "depth": row.depth,
        "order": row.order,
        "node": row.node,
        "slot": row.slot,
        "gradient": _gradient(row.grad),
        "reason": row.reason,
    }


def graph_object(report: Report) -> Object:
    """Return the structure of the backward graph."""
    graph = report.graph
    return {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "depth": graph.depth,
        "leaves": graph.leaves,
        "views": graph.views,
        "operations": dict(graph.operations),
        "widest": None
        if graph.widest is None
        else {"depth": graph.widest.depth, "nodes": graph.widest.nodes},
        "parameters_by_depth": [
            {"depth": depth, "parameters": count} for depth, count in graph.parameters_by_depth
        ],
    }


def other_step_object(step: OtherStep, report: Report) -> Object:
    """Return a step made on a snapshot, with the gradient norm of every parameter by name."""
    names = [row.name for row in report.parameters]
    return {
        "step": step.step,
        "loss": step.loss,
        "grad_norm": step.grad_norm,
        "optimizer": step.optimizer,
        "parameters": dict(zip(names, step.parameters, strict=True)),
    }


def event_object(event: EventRecord, report: Report) -> Object:
    """Return something that happened in a step."""
    site = None if event.site is None else report.recording.sites[event.site]
    owner: Object = {}
    if report.training_run is not None:
        owner = {"optimizer": event.optimizer, "subject": event.subject}
    return {
        "step": event.step,
        "order": event.order,
        "event": event.kind,
        "seconds": event.seconds,
        "location": location_object(site, report),
        "numbers": dict(event.numbers),
        **owner,
    }


def rules_object(report: Report) -> Object:
    """Return which rules ran, and which could not."""
    return {
        "ran": report.rules.ran,
        "skipped": [{"rule": item.rule, "reason": item.reason} for item in report.rules.skipped],
    }


def finding_object(finding: Finding, report: Report) -> Object:
    """Return a finding."""
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity,
        "message": finding.message,
        "location": location_object(finding.location, report),
        "related": [
            {
                "file": shown_path(related.file, report.target.root),
                "line": related.line,
                "message": related.message,
                "source": related.source,
            }
            for related in finding.related
        ],
        "parameters": finding.parameters,
        "modules": finding.modules,
        "step": finding.step,
        "count": finding.count,
        "evidence": dict(finding.evidence),
        "remedy": finding.remedy,
        "consequences": [
            {"rule": item.rule, "name": item.name, "message": item.message}
            for item in finding.consequences
        ],
        **({"ranks": finding.ranks} if finding.ranks else {}),
        "fingerprint": finding.fingerprint,
    }
