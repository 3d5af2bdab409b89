"""A check as JUnit's XML: a suite for each target, a test case for each rule."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gradscope.check.results import CheckResult, TargetResult
from gradscope.phrasing import counted, printable
from gradscope.recording.finding import Severity
from gradscope.report.ci.locations import bare_name
from gradscope.report.ci.reported import (
    ReportedFinding,
    ReportedTarget,
    failing_levels,
    reported,
    stale_text,
    unmatched_text,
)
from gradscope.rules.catalogue import RULES

_COUNTED = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
"""Attributes of suites, and the elements that they count."""


def render_junit(result: CheckResult) -> str:
    """Return the XML document.

    What fails the check is a failure; what is found and does not fail it, known findings included,
    is reported as output. A rule that can judge no run of a target is skipped. What could not be
    judged at all is an error. There are no times: they would be those of this report.
    """
    root = Element("testsuites", name="gradscope")
    levels = failing_levels(result)
    suites = [_suite(root, one, levels) for one in reported(result)]
    if result.stale:
        suites.append(_baseline(root, result))
    if result.unmatched:
        suites.append(_limits(root, result))
    for name in _COUNTED:
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    indent(root)
    text = tostring(root, encoding="unicode")
    # ElementTree would declare the locale's encoding for a text.
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'


def _suite(root: Element, one: ReportedTarget, levels: frozenset[Severity]) -> Element:
    suite = SubElement(root, "testsuite", name=one.name)
    target, class_name = one.target, _class_name(one.target.name)
    for failure in one.failures:
        case = SubElement(suite, "testcase", classname=class_name, name="could be checked")
        error = SubElement(case, "error", type="unjudged", message=failure.statement)
        error.text = "\n".join(failure.details)
    for code, name in _rules(one):
        case = SubElement(suite, "testcase", classname=class_name, name=name)
        _judgement(case, [each for each in one.findings if each.code == code], levels)
        if (reason := _skip_reason(code, target)) is not None:
            SubElement(case, "skipped", message=printable(reason))
    _count(suite)
    return suite


def _class_name(target: str) -> str:
    """Return the name of a target with dots for slashes: reports group test cases by it."""
    name = bare_name(target)
    expression = target[len(name) :]
    module = name.removesuffix(".py").replace("\\", "/").removeprefix("./").strip("/")
    return printable(f"{module.replace('/', '.')}{expression}")


def _rules(one: ReportedTarget) -> Iterator[tuple[str, str]]:
    """Yield the codes of the rules that the settings let run, with their names."""
    names = {rule.code: f"{rule.code} {rule.name}" for rule in RULES}
    names |= {each.code: each.rule for each in one.findings}
    enabled = {each.code for each in one.findings}
    for run in one.target.runs:
        enabled.update(run.verdict.ran)
        enabled.update(item.rule for item in run.verdict.skipped if not item.is_left_out)
    for code in sorted(enabled):
        # XML has no control characters, not even as references.
        yield printable(code), printable(names.get(code, code))


def _skip_reason(code: str, target: TargetResult) -> str | None:
    """Return why a rule could not judge any run; None if it judged one."""
    if any(code in run.verdict.ran for run in target.runs):
        return None
    skipped = (item for run in target.runs for item in run.verdict.skipped if item.rule == code)
    return next((item.reason for item in skipped), None)


def _judgement(
    case: Element, found: Sequence[ReportedFinding], levels: frozenset[Severity]
) -> None:
    """Add the findings of a rule to its test case; those of these levels are failures."""
    failing = [one for one in found if not one.item.is_known and one.severity in levels]
    others = [one for one in found if one.item.is_known or one.severity not in levels]
    if failing:
        several = counted(len(failing), "finding")
        message = failing[0].statement if len(failing) == 1 else several
        failure = SubElement(case, "failure", type=failing[0].rule, message=message)
        failure.text = "\n\n".join(map(_text, failing))
    if others:
        SubElement(case, "system-out").text = "\n\n".join(map(_text, others))


def _text(one: ReportedFinding) -> str:
    known = "known " if one.item.is_known else ""
    return "\n".join(
        [
            f"{one.spot}: {known}{one.severity}: {one.statement}",
            *([f"  {one.placement.remark}"] if one.placement.remark else []),
            *(f"  {line}" for line in one.details),
            *(f"  {near.location.text}: {near.message}" for near in one.placement.related),
            f"  help: {one.help}",
        ]
    )


def _baseline(root: Element, result: CheckResult) -> Element:
    suite = SubElement(root, "testsuite", name="baseline")
    case = SubElement(suite, "testcase", classname="baseline", name="every entry still occurs")
    first, *others = stale_text(result)
    kind = "failure" if result.stale_fails else "skipped"
    SubElement(case, kind, message=first).text = "\n".join(others)
    _count(suite)
    return suite


def _limits(root: Element, result: CheckResult) -> Element:
    suite = SubElement(root, "testsuite", name="limits")
    for text in unmatched_text(result):
        case = SubElement(suite, "testcase", classname="limits", name=text)
        SubElement(case, "skipped", message="it matches nothing")
    _count(suite)
    return suite


def _count(suite: Element) -> None:
    """Set the attributes that count test cases by their result."""
    for name, path in {**_COUNTED, "skipped": "testcase/skipped"}.items():
        suite.set(name, str(len(suite.findall(path))))
