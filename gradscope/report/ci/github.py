"""A check for GitHub Actions: annotations of lines, and the Markdown summary of a step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gradscope.check.results import CheckResult, TargetResult, exit_code
from gradscope.errors import ExitCode
from gradscope.phrasing import counted, printable
from gradscope.recording.finding import SEVERITIES, Severity
from gradscope.report.ci.reported import (
    ReportedFailure,
    ReportedFinding,
    ReportedTarget,
    reported,
    stale_text,
    unmatched_text,
    worst_first,
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

_SHOWN = 10
"""Maximum number of annotations of each level that GitHub shows per step."""
_LONGEST = 4000
"""Maximum length of a message in characters: GitHub stores 64 KB of it and shows less."""
_PLACES_SHOWN = 12
_RELATED_SHOWN = 4
_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}

_LARGEST = 512 * 1024
"""Maximum size of a summary in bytes; GitHub rejects more than twice as much per step."""
_CLOSING = 200
"""Bytes reserved for the line on omitted findings."""
"""Maximum length of one text in characters."""
_KNOWN_SHOWN = 50
_OUTCOMES = {
    ExitCode.OK: "passed",
    ExitCode.FINDINGS: "failed",
    ExitCode.CANNOT_JUDGE: "could not check",
}


def render_github(result: CheckResult) -> str:
    """Return a command a line, the worst first, and for a gate the verdict as a line of the log.

    Of each level there are no more than GitHub shows: the last one sums up the others. Known
    findings are left out.
    """
    targets = reported(result)
    found = worst_first(targets)
    lines: list[str] = []
    for level in SEVERITIES:
        of_level = [one for one in found if one.severity == level]
        lines += _annotations(level, list(_announced(level, targets, result)), of_level)
    if result.policy is not None:
        lines.append(closing_text(result))
    return "\n".join(lines)


def _announced(
    level: Severity, targets: Sequence[ReportedTarget], result: CheckResult
) -> Iterator[str]:
    """Yield the messages of a level that concern no line."""
    if level == "error":
        for failure in (one for target in targets for one in target.failures):
            yield "\n".join([failure.statement, *failure.details])
    if level == "warning":
        yield from unmatched_text(result)
    if result.stale and level == ("error" if result.stale_fails else "note"):
        yield "\n".join(stale_text(result))


def _annotations(
    level: Severity, announced: Sequence[str], found: Sequence[ReportedFinding]
) -> Iterator[str]:
    more = len(announced) + len(found) > _SHOWN
    # One annotation sums up what is left out.
    room = _SHOWN - 1 if more else _SHOWN
    for message in announced[:room]:
        yield command(level, message, title="gradscope")
    shown, rest = _divided(found, room - len(announced[:room]))
    for one in shown:
        yield _annotation(one)
    if more:
        count = len(announced[room:]) + len(rest)
        lines = [f"and {counted(count, f'more {level}')}, in the log and the summary of this step"]
        yield command(level, "\n".join([*lines, *_by_rule(rest)]), title="gradscope")


def _divided(
    found: Sequence[ReportedFinding], room: int
) -> tuple[list[ReportedFinding], list[ReportedFinding]]:
    """Return as many findings as are allowed, and the others; both rule by rule.

    Every rule shows its first finding before any shows its second.
    """
    seen = Counter[str]()
    turns = []
    for position, one in enumerate(found):
        turns.append((seen[one.rule], position))
        seen[one.rule] += 1
    rules = list(seen)
    shown = {location for _, location in sorted(turns)[:room]}
    locations = sorted(range(len(found)), key=lambda location: rules.index(found[location].rule))
    return (
        [found[location] for location in locations if location in shown],
        [found[location] for location in locations if location not in shown],
    )


def _by_rule(found: Sequence[ReportedFinding]) -> Iterator[str]:
    """Yield `GS201 gradient-cut (3): model.py:12, model.py:40`."""
    for rule, count in Counter(one.rule for one in found).items():
        spots = list(dict.fromkeys(one.spot for one in found if one.rule == rule))
        more = ", …" if len(spots) > _PLACES_SHOWN else ""
        yield f"{rule} ({count:,}): {', '.join(spots[:_PLACES_SHOWN])}{more}"


def _annotation(one: ReportedFinding) -> str:
    where = one.placement
    lines = [
        one.statement,
        *one.notes,
        *(f"{near.location.text}: {near.message}" for near in where.related[:_RELATED_SHOWN]),
        f"help: {one.help}",
    ]
    is_shown = where.location.in_repository and not where.is_stand_in
    location = (
        # GitHub shows an annotation without a file at the job itself.
        {"file": printable(where.location.path), "line": str(where.location.line)}
        if is_shown
        else {}
    )
    return command(one.severity, "\n".join(lines), **location, title=f"gradscope ({one.rule})")


def command(level: Severity, message: str, **properties: str) -> str:
    """Return a workflow command that makes an annotation."""
    given = ",".join(f"{key}={escaped_property(value)}" for key, value in properties.items())
    # Cut before it is escaped, so that no escape is cut in half.
    return f"::{_COMMANDS[level]} {given}::{escaped_message(_cut(message))}"


def escaped_message(text: str) -> str:
    """Return a text as the message of a command, which ends with the line."""
    # The percent sign comes first: it begins the other escapes.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """Return a text as the value of a command's property."""
    return escaped_message(text).replace(":", "%3A").replace(",", "%2C")


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
