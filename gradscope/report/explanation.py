"""Why a rule did or did not find anything in a recording."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, assert_never

from gradscope.analysis.view import shown_path, shown_site
from gradscope.phrasing import counted
from gradscope.recording.finding import Severity
from gradscope.report.document import (
    Block,
    Column,
    Document,
    Location,
    Note,
    Points,
    Table,
    Value,
    Word,
    more,
)
from gradscope.report.json.shape import SCHEMA_VERSION, Count, Object, Of, Shape, indented
from gradscope.report.number_format import figure
from gradscope.rules.explanation import Explanation
from gradscope.rules.measurement import Measurement

if TYPE_CHECKING:
    from rich.console import Console

ExplanationFormat = Literal["text", "json", "markdown"]

_MOST = 20
"""Maximum number of rows of a table; JSON has every measurement."""

_COLUMNS = (
    Column(title="number"),
    Column(title="measured", kind="number"),
    Column(title="fires if", kind="number"),
    Column(title="met"),
    Column(title="step"),
    Column(title="what"),
    Column(title="line"),
)


def render_explanation(
    explanation: Explanation,
    recording: str,
    root: str,
    output_format: ExplanationFormat,
    console: "Console",
) -> str:
    """Return the measurements of a rule on a recording, without a last line break.

    Args:
        explanation: What the rule measured.
        recording: Name of the recording's file.
        root: Folder to which paths of the script are shown.
        output_format: Format of the result.
        console: Decides width, colour and characters of text.
    """
    build = partial(_document, explanation, recording, root)
    match output_format:
        case "text":
            # Deferred: only text needs rich.
            from gradscope.report.formats.text import render_text

            return render_text(build, console)
        case "markdown":
            from gradscope.report.formats.markdown import render_markdown

            return render_markdown(build)
        case "json":
            return indented(_object(explanation, recording, root))
    assert_never(output_format)


def _document(explanation: Explanation, recording: str, root: str, _: int) -> Document:
    return Document(
        program=f"{explanation.code} {explanation.name}",
        subject=recording,
        header=(Note(_verdict(explanation)),),
        blocks=tuple(_blocks(explanation, root)),
        closing=(),
    )


def _verdict(explanation: Explanation) -> str:
    """Return the result in one sentence."""
    if explanation.skip_reason is not None:
        return f"Could not judge: {explanation.skip_reason}."
    if not explanation.findings:
        return "No finding."
    levels = [finding.severity for finding in explanation.findings]
    return f"Found {counted(len(levels), 'problem')} ({', '.join(levels)})."


def _blocks(explanation: Explanation, root: str) -> Iterator[Block]:
    found = explanation.findings
    if found:
        yield Points(
            tuple(
                (Word(shown_site(one.location, root), "code"), f" {one.message}") for one in found
            )
        )
    if facts := " ".join(_facts(explanation)):
        yield Note(facts)
    rows = _rows(explanation, root)
    if rows:
        yield Table(columns=_COLUMNS, rows=tuple(rows[:_MOST]))
    for line in more(len(rows) - _MOST, "in --output-format json"):
        yield Note(line)


def _facts(explanation: Explanation) -> Iterator[str]:
    """Yield what the rule judged and what it could not judge, one sentence each."""
    if explanation.judged_steps:
        yield f"Judged {counted(explanation.judged_steps, 'captured step')}."
    if explanation.skip_reason is None:
        for reason, steps in explanation.skipped_steps:
            yield f"Could not judge {counted(steps, 'captured step')}: {reason}."
    looked_for = (f"{one.what} ({one.count:,})" for one in explanation.candidates)
    yield f"Looked at {', '.join(looked_for)}."
    if not explanation.measurements and explanation.skip_reason is None:
        yield "No number was compared with a limit."


def _rows(explanation: Explanation, root: str) -> list[tuple[Value, ...]]:
    """Return a row for each thing that was measured, its worst step first."""
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for one in explanation.measurements:
        key = (one.number, one.subject, one.site, one.limit, one.fires)
        groups.setdefault(key, []).append(one)
    return [_row(members[0], len(members), root) for members in groups.values()]


def _row(worst: Measurement, steps: int, root: str) -> tuple[Value, ...]:
    sign = ">=" if worst.fires == "above" else "<="
    step = "" if worst.step is None else f"{worst.step}"
    return (
        worst.number,
        worst.value,
        f"{sign} {figure(worst.limit)}",
        "yes" if worst.is_beyond else "no",
        f"{step} (worst of {steps})" if step and steps > 1 else step,
        worst.subject,
        Location(shown_site(worst.site, root)),
    )


class _Location(Shape):
    """A line of code, relative to the script's folder."""

    file: Annotated[str, Of(lambda site, root: shown_path(site.file, root))]
    line: Count


class _SkippedSteps(Shape):
    """Captured steps that the rule could not judge."""

    reason: Annotated[str, Of(lambda pair, _: pair[0])]
    steps: Annotated[Count, Of(lambda pair, _: pair[1])]


class _Finding(Shape):
    """A finding of the rule itself."""

    severity: Severity
    message: str
    location: _Location | None
    step: Count | None
    evidence: dict[str, float | str | bool | None]


class _Candidates(Shape):
    """Objects of one kind that the rule searched for."""

    what: str
    count: Count


class _Measurement(Shape):
    """A number that the rule compared with a limit."""

    number: str
    value: float
    limit: float
    fires: str
    is_beyond: bool
    subject: str
    location: Annotated[_Location | None, Of("site")]
    step: Count | None


class _Explanation(Shape):
    """The measurements of one rule."""

    rule: Annotated[str, Of("code")]
    name: str
    skip_reason: str | None
    judged_steps: Count | None
    skipped_steps: tuple[_SkippedSteps, ...]
    findings: tuple[_Finding, ...]
    candidates: tuple[_Candidates, ...]
    measurements: tuple[_Measurement, ...]


def _object(explanation: Explanation, recording: str, root: str) -> Object:
    head: Object = {"schema_version": SCHEMA_VERSION, "recording": recording}
    return head | _Explanation.write(explanation, root)
