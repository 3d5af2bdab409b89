"""A check as workflow commands of GitHub Actions, which become annotations."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gradscope.check.results import CheckResult
from gradscope.phrasing import counted, printable
from gradscope.recording.finding import SEVERITIES, Severity
from gradscope.report.ci.reported import (
    ReportedFinding,
    ReportedTarget,
    reported,
    stale_text,
    unmatched_text,
    worst_first,
)
from gradscope.report.documents.check import closing_text

_SHOWN = 10
"""Maximum number of annotations of each level that GitHub shows per step."""
_LONGEST = 4000
"""Maximum length of a message in characters: GitHub stores 64 KB of it and shows less."""
_PLACES_SHOWN = 12
_RELATED_SHOWN = 4
_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}


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
    # Before it is escaped, so that no escape is cut in half.
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}…"
    return f"::{_COMMANDS[level]} {given}::{escaped_message(message)}"


def escaped_message(text: str) -> str:
    """Return a text as the message of a command, which ends with the line."""
    # The percent sign comes first: it begins the other escapes.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """Return a text as the value of a command's property."""
    return escaped_message(text).replace(":", "%3A").replace(",", "%2C")
