"""A check as a SARIF 2.1.0 log, for code scanning and editors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from urllib.parse import quote

from gradscope.check.results import CheckResult, TargetResult, exit_code
from gradscope.phrasing import printable
from gradscope.recording.finding import Edit, Finding, Fix, Severity
from gradscope.report.ci.locations import Location, RelatedLocation, location_of
from gradscope.report.ci.reported import (
    ReportedFinding,
    ReportedTarget,
    reported,
    stale_text,
    unmatched_text,
)
from gradscope.report.documents.check import unjudged_rules
from gradscope.report.json.shape import Json, Object, finite
from gradscope.report.rule_manual import markdown_manual
from gradscope.rules.catalogue import RULES
from gradscope.rules.manual import manual_of
from gradscope.rules.rule import Rule
from gradscope.source_edits.text_edits import by_file

_PROBLEMS: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "note": "recommendation",
}


def rule_descriptors(targets: Sequence[TargetResult]) -> list[Object]:
    """Return the rules that judged the targets or found something, with their manuals."""
    ran = {code for target in targets for run in target.runs for code in run.verdict.ran}
    found = {item.finding.rule: item.finding for target in targets for item in target.findings}
    known = {rule.code: rule for rule in RULES}
    return [
        _described(known[code]) if code in known else _named(found[code])
        for code in sorted(ran & known.keys() | found.keys())
    ]


@cache  # many targets share the rules
def _described(rule: type[Rule]) -> Object:
    manual = manual_of(rule)
    fix = next(one.text for one in manual.sections if one.heading == "How to fix it")
    finds = next(one.text for one in manual.sections if one.heading == "What it finds")
    return {
        "id": manual.code,
        "name": _pascal_case(manual.name),
        "shortDescription": {"text": manual.summary},
        "fullDescription": {"text": finds},
        "help": {"text": f"{manual.summary}\n\n{fix}", "markdown": markdown_manual(manual)},
        "defaultConfiguration": {"level": manual.level},
        "properties": {
            "tags": ["gradients", manual.family],
            # Of rules that are not about security, GitHub reads the severity here.
            "problem.severity": _PROBLEMS[manual.level],
            "precision": "high",
        },
    }


def _named(finding: Finding) -> Object:
    """Return a rule that this version has not, by what its finding says."""
    text = {"text": printable(finding.name.replace("-", " "))}
    return {
        "id": finding.rule,
        "name": _pascal_case(finding.name),
        "shortDescription": text,
        "fullDescription": text,
        "help": text,
    }


def _pascal_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_RUNS = 20
"""GitHub rejects a file with more runs."""
_MOST_RESULTS = 25_000
"""GitHub rejects a run with more results."""
_LONGEST = 4000
_NAMES_SHOWN = 10


def render_sarif(result: CheckResult) -> str:
    """Return the log: a run for each target, in one category of code scanning each.

    Of more targets than GitHub takes runs, all are in one run. Paths are relative to the
    repository; no path of this machine is reported.
    """
    targets = reported(result)
    by_name: dict[str, list[ReportedTarget]] = {}
    for target in targets:
        by_name.setdefault(target.name, []).append(target)
    # A log has a run in any case, which says that nothing was checked.
    if not by_name or len(by_name) > _MOST_RUNS:
        by_name = {"": list(targets)}
    runs: Json = [_run(name, targets, result) for name, targets in by_name.items()]
    log: Json = {"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}
    # JSON has neither NaN nor infinity.
    return json.dumps(finite(log), indent=1, allow_nan=False)


def _run(name: str, targets: Sequence[ReportedTarget], result: CheckResult) -> Object:
    found = [one for target in targets for one in target.findings]
    rules = rule_descriptors([target.target for target in targets])
    locations = {str(rule["id"]): position for position, rule in enumerate(rules)}
    return {
        "tool": {
            "driver": {
                "name": "gradscope",
                "version": result.version,
                "rules": rules,
            }
        },
        # GitHub takes what is before the last slash for the category of the alerts.
        "automationDetails": {"id": f"gradscope/{name}/" if name else "gradscope/"},
        # As Python counts; by default, viewers count UTF-16 units.
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(targets, result, left_out=len(found) - _MOST_RESULTS)],
        "results": [_result(one, locations) for one in found[:_MOST_RESULTS]],
    }


def _invocation(targets: Sequence[ReportedTarget], result: CheckResult, *, left_out: int) -> Object:
    failures = [failure for target in targets for failure in target.failures]
    notes = [
        *(_notification("error", [one.statement, *one.details]) for one in failures),
        *(
            _notification("note", [f"{codes} not applicable to {target.name}: {reason}"])
            for target in targets
            for codes, reason in unjudged_rules(target.target)
        ),
    ]
    notes += [_notification("warning", [text]) for text in unmatched_text(result)]
    if result.stale:
        level: Severity = "error" if result.stale_fails else "note"
        notes.append(_notification(level, stale_text(result)))
    if left_out > 0:
        notes.append(_notification("warning", [f"{left_out:,} more findings omitted"]))
    # `inspect` and `report` exit with 0 whatever they find.
    code: Object = {} if result.policy is None else {"exitCode": int(exit_code(result))}
    return {
        **code,
        "executionSuccessful": bool(targets) and not failures,
        **({"toolExecutionNotifications": notes} if notes else {}),
    }


def _notification(level: Severity, lines: Sequence[str]) -> Object:
    return {"level": level, "message": {"text": _cut("\n".join(lines))}}


def _result(one: ReportedFinding, rule_indices: Mapping[str, int]) -> Object:
    finding, where = one.item.finding, one.placement
    site = finding.location
    source = site.source if site is not None and where.location == where.cause else ""
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_indices[finding.rule],
        "level": one.severity,
        "message": {"text": _message(one)},
        "locations": [
            {**_physical(where.location, source), "logicalLocations": list(_logical(one))}
        ],
        "relatedLocations": [
            {"id": number, **_physical(near.location), "message": {"text": near.message}}
            for number, near in enumerate(_linked(one))
        ],
        # Findings of several targets on one line need separate alerts. Of these fingerprints,
        # code scanning reads the second.
        "partialFingerprints": {
            "gradscope/v1": one.identity,
            "primaryLocationLineHash": f"{one.identity[:16]}:1",
        },
        "suppressions": _suppressions(one),
        **_fixes(finding.fix, one),
        "properties": _properties(one),
    }


def _message(one: ReportedFinding) -> str:
    """Return the message, in which brackets before a number link to a location."""
    lines = [f"{one.statement}.", *one.notes, f"help: {one.help}"]
    related = [
        f"[{_escaped(near.location.text)}]({number}): {_cut(_unlinked(near.message))}"
        for number, near in enumerate(_linked(one))
    ]
    outside = [
        _cut(_unlinked(f"{near.location.text}: {near.message}"))
        for near in one.placement.related
        if not near.location.in_repository
    ]
    return "\n".join([*(_cut(_unlinked(line)) for line in lines), *related, *outside])


def _linked(one: ReportedFinding) -> list[RelatedLocation]:
    """Return the other lines that viewers of the log can show."""
    return [near for near in one.placement.related if near.location.in_repository]


def _unlinked(text: str) -> str:
    return text.replace("](", "] (")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _physical(location: Location, source: str = "") -> Object:
    snippet: Object = {"snippet": {"text": _cut(printable(source))}} if source else {}
    return {
        "physicalLocation": {
            "artifactLocation": _artifact(location),
            "region": {"startLine": location.line, **snippet},
        }
    }


def _artifact(location: Location) -> Object:
    # A URI holds neither spaces nor letters outside ASCII.
    return {"uri": quote(location.path, safe="/"), "uriBaseId": "%SRCROOT%"}


def _logical(one: ReportedFinding) -> Iterator[Object]:
    """Yield the parameters concerned, the first of them, or else the modules."""
    finding = one.item.finding
    kind = "parameter" if finding.parameters else "module"
    for name in map(printable, (finding.parameters or finding.modules)[:_NAMES_SHOWN]):
        yield {"fullyQualifiedName": name, "name": name.rpartition(".")[2], "kind": kind}


def _suppressions(one: ReportedFinding) -> list[Object]:
    if not one.item.is_known:
        return []
    return [{"kind": "external", "justification": "it is in the baseline"}]


def _fixes(fix: Fix | None, one: ReportedFinding) -> Object:
    """Return the edits that fix a finding, if they are verified and in the repository."""
    if fix is None or not fix.verified:
        return {}
    target = one.target.runs[one.item.run].recording.target
    changes: list[Object] = []
    for file, edits in by_file(fix.edits).items():
        location = location_of(file, 1, target)
        if not location.in_repository:
            # A fix of which only a part is applied breaks the code.
            return {}
        replacements = [_replacement(edit) for edit in edits]
        changes.append({"artifactLocation": _artifact(location), "replacements": replacements})
    text = {"text": _cut(f"verified: {printable(fix.verdict)}")}
    return {"fixes": [{"description": text, "artifactChanges": changes}]}


def _replacement(edit: Edit) -> Object:
    return {
        "deletedRegion": {
            "startLine": edit.start.line,
            "startColumn": edit.start.column,
            "endLine": edit.end.line,
            "endColumn": edit.end.column,
        },
        "insertedContent": {"text": edit.replacement},
    }


def _properties(one: ReportedFinding) -> Object:
    finding, item = one.item.finding, one.item
    return {
        "target": printable(one.target.name),
        "seeds": list(item.seeds),
        "parameters": len(finding.parameters),
        "count": finding.count,
        "evidence": {
            printable(name): printable(value) if isinstance(value, str) else value
            for name, value in finding.evidence
        },
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
