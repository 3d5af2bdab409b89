"""A check in Markdown, for the summary of a step in GitHub Actions and for comments."""

from collections.abc import Iterable, Iterator

from gradscope.check.results import CheckResult, TargetResult, exit_code
from gradscope.errors import ExitCode
from gradscope.phrasing import counted
from gradscope.report.ci.reported import (
    ReportedFailure,
    ReportedFinding,
    ReportedTarget,
    reported,
    stale_text,
    unmatched_text,
)
from gradscope.report.documents.check import (
    closing_text,
    found_text,
    measured_text,
    unjudged_rules,
)
from gradscope.report.finding_phrasing import evidence_text
from gradscope.report.formats.markdown import code, escape, fenced, prose
from gradscope.report.snippets import snippets

_LARGEST = 512 * 1024
"""Maximum size of a summary in bytes; GitHub rejects more than twice as much per step."""
_CLOSING = 200
"""Bytes reserved for the line on omitted findings."""
_LONGEST = 4000
"""Maximum length of one text in characters."""
_KNOWN_SHOWN = 50
_OUTCOMES = {
    ExitCode.OK: "passed",
    ExitCode.FINDINGS: "failed",
    ExitCode.CANNOT_JUDGE: "could not check",
}


def step_summary(result: CheckResult) -> str:
    """Return the result of the check and every finding with its code, without a last line break.

    What would make it larger than 512 KiB is left out, and counted.
    """
    size, kept, left_out = 0, list[str](), 0
    for block in _blocks(result):
        # The blank line between two paragraphs counts, too.
        size += len(block.encode(errors="replace")) + 2
        # A later paragraph that fits would seem to belong to another finding.
        if left_out or size > _LARGEST - _CLOSING:
            left_out += 1
        else:
            kept.append(block)
    if left_out:
        kept.append(f"{left_out:,} more paragraphs did not fit into the summary: see the log.")
    return "\n\n".join(kept)


def _blocks(result: CheckResult) -> Iterator[str]:
    is_check = result.policy is not None
    yield f"## gradscope: {_OUTCOMES[exit_code(result)] if is_check else 'report'}"
    found = found_text(item for target in result.targets for item in target.counted())
    closing = closing_text(result) if is_check else f"Found {found}."
    yield " ".join(map(escape, (closing, *_known_text(result))))
    if lines := [f"- {escape(text)}" for text in unmatched_text(result)]:
        yield "\n".join(lines)
    for target in reported(result):
        yield from _target(target)
    if stale := stale_text(result):
        yield "### Baseline"
        yield "\n".join([f"{escape(stale[0])}:", *(f"- {escape(line)}" for line in stale[1:])])


def _known_text(result: CheckResult) -> Iterator[str]:
    known = sum(item.is_known for target in result.targets for item in target.findings)
    if known:
        yield f"{counted(known, 'known finding')} in the baseline, not counted."


def _target(one: ReportedTarget) -> Iterator[str]:
    yield f"### {code(one.name)}"
    if one.target.runs:
        yield _judged(one.target)
    for failure in one.failures:
        yield _failure(failure)
    for found in one.findings:
        if not found.item.is_known:
            yield "\n\n".join(_finding(found))
    yield from _known([found for found in one.findings if found.item.is_known])


def _judged(target: TargetResult) -> str:
    """Return the measurements, and the rules that could not judge them."""
    parts = [
        measured_text(target),
        *(f"{codes} not applicable: {reason}" for codes, reason in unjudged_rules(target)),
    ]
    return f"{escape('; '.join(parts))}."


def _failure(failure: ReportedFailure) -> str:
    lines = "\n".join(failure.details)
    # A fence is longer than any run of its sign in the text.
    fence = "~" * max(3, 1 + _longest_run(lines))
    details = f"\n\n{fence}text\n{_cut(lines)}\n{fence}" if lines else ""
    return f"**{escape(_cut(failure.statement))}**{details}"


def _longest_run(text: str) -> int:
    return max(map(len, "".join(sign if sign == "~" else " " for sign in text).split()), default=0)


def _finding(one: ReportedFinding) -> Iterator[str]:
    location = one.placement.cause
    at = f" at {code(location.text)}" if location is not None else ""
    yield f"**{one.severity} {one.rule}**{at}: {prose(_cut(one.statement))}"
    finding = one.item.finding
    shown = snippets(finding, one.recording)[:1]
    yield from (fenced(snippet) for snippet in shown if snippet.lines)
    measured = evidence_text(finding)
    yield "\n".join(
        [
            *_related(one),
            *(f"- {escape(_cut(line))}" for line in one.details),
            *([f"- measured: {escape(_cut(measured))}"] if measured else []),
            f"- **help**: {prose(_cut(one.help))}",
        ]
    )


def _related(one: ReportedFinding) -> Iterator[str]:
    for near in one.placement.related:
        yield f"- {code(near.location.text)}: {prose(_cut(near.message))}"


def _known(found: list[ReportedFinding]) -> Iterable[str]:
    """Return the findings that the baseline hides, folded away; nothing without any."""
    if not found:
        return []
    lines = [
        f"- {one.severity} {one.rule} at {code(one.spot)}: {prose(_cut(one.statement))}"
        for one in found[:_KNOWN_SHOWN]
    ]
    if (more := len(found) - _KNOWN_SHOWN) > 0:
        lines.append(f"- and {more:,} more")
    summary = f"<summary>{counted(len(found), 'known finding')} in the baseline</summary>"
    # Within HTML, GitHub reads Markdown only behind a blank line.
    return ["\n".join([f"<details>{summary}", "", *lines, "", "</details>"])]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
