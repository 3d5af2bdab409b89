"""The command to run after a report, for people and agents who go on from it."""

import shlex
from collections.abc import Iterable, Sequence

from gradscope.analysis.report import Report
from gradscope.check.results import CheckResult
from gradscope.comparison.comparison import Comparison
from gradscope.recording.finding import SEVERITIES, Finding

_KEEPS_FILES = ("-o", "--output-file", "--save", "--open")
"""Options under which the same command would write a file again."""
_ENDS_OTHERWISE = ("--overfit", "--steps", "--micro-batches", "--")


def next_of_report(report: Report) -> str:
    """Return what explains the worst finding; without any, what shows that the model learns."""
    return _of_findings(report.findings) or _overfitting(report)


def next_of_check(result: CheckResult) -> str:
    """Return what explains the worst finding that counts, or guesses what is missing.

    It is empty without either.
    """
    counted = (item.finding for target in result.targets for item in target.counted())
    return _of_findings(counted) or guessing(result)


def guessing(result: CheckResult) -> str:
    """Return the same check with guesses for what a target does not have; empty if nothing is."""
    needs_guess = any(one.needs_guess for target in result.targets for one in target.failures)
    try:
        words = shlex.split(result.command)
    except ValueError:  # the command of a damaged recording
        return ""
    if not needs_guess or words[:2] != ["gradscope", "check"]:
        return ""
    return shlex.join([*words[:2], "--allow-guesses", *words[2:]])


def next_of_comparison(comparison: Comparison) -> str:
    """Return what explains the worst finding that only a later side has, else that any has."""
    others = range(1, len(comparison.sides))
    news = [
        one.first[1]
        for one in comparison.findings
        if any(one.standing(position) in ("came", "worse") for position in others)
    ]
    return _of_findings(news) or _of_findings(one.first[1] for one in comparison.findings)


def _of_findings(findings: Iterable[Finding]) -> str:
    worst = min(findings, key=lambda one: SEVERITIES.index(one.severity), default=None)
    return "" if worst is None else f"gradscope rule {worst.rule}"


def _overfitting(report: Report) -> str:
    """Return the command that trains an inspected model on its batch; empty where it says no more.

    It is empty where the command cannot simply be repeated, too.
    """
    try:
        words = shlex.split(report.command)
    except ValueError:  # the command of a damaged recording
        return ""
    is_inspection = words[:2] == ["gradscope", "inspect"] and report.rules.ran
    return shlex.join([*words, "--overfit"]) if is_inspection and _is_repeatable(words) else ""


def _is_repeatable(words: Sequence[str]) -> bool:
    options = {word.partition("=")[0] for word in words}
    return options.isdisjoint({*_KEEPS_FILES, *_ENDS_OTHERWISE})
