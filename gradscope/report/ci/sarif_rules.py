"""The rules of a check as SARIF describes them."""

from collections.abc import Sequence
from functools import cache

from gradscope.check.results import TargetResult
from gradscope.phrasing import printable
from gradscope.recording.finding import Finding, Severity
from gradscope.report.objects import Object
from gradscope.report.rule_markdown import markdown_manual
from gradscope.rules.catalogue import RULES
from gradscope.rules.manual import manual_of
from gradscope.rules.rule import Rule

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
