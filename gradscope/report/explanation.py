"""Why a rule did or did not find anything, in text, Markdown and JSON."""

import json
from collections.abc import Iterator
from typing import Literal, assert_never

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.analysis.view import shown_path, shown_site
from gradscope.phrasing import counted
from gradscope.recording.records import Site
from gradscope.report.json_objects import SCHEMA_VERSION, Object, finite
from gradscope.report.markdown_syntax import code, escape, prose, table
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE, Page, Signs, Trimmed
from gradscope.rules.explanation import Explanation
from gradscope.rules.measurement import Measurement

ExplanationFormat = Literal["text", "json", "markdown"]

_MOST = 20
"""Rows that a table shows; JSON has every measurement."""
_WIDEST = 120


def render_explanation(
    explanation: Explanation,
    recording: str,
    root: str,
    output_format: ExplanationFormat,
    console: Console,
) -> str:
    """Return what a rule measured on a recording, without a last line break.

    Args:
        explanation: What the rule measured.
        recording: Name of the recording's file.
        root: Folder to which paths of the script are shown.
        output_format: Format of the result.
        console: Console that the text is for.
    """
    match output_format:
        case "text":
            page = Page.of(console, root)
            with console.capture() as capture:
                for part in _text(explanation, recording, page):
                    console.print(Trimmed(part), end="", width=min(console.width, _WIDEST))
            return capture.get().rstrip("\n")
        case "markdown":
            return "\n".join(_markdown(explanation, recording, root))
        case "json":
            document = finite(_object(explanation, recording, root))
            return json.dumps(document, indent=2, allow_nan=False)
    assert_never(output_format)


def _verdict(explanation: Explanation) -> str:
    """Return what came of it, in one sentence."""
    if explanation.skip_reason is not None:
        return f"could not judge: {explanation.skip_reason}"
    if not explanation.findings:
        return "no finding"
    levels = [finding.severity for finding in explanation.findings]
    return f"found {counted(len(levels), 'problem')} ({', '.join(levels)})"


def _facts(explanation: Explanation) -> Iterator[str]:
    """Yield what it judged and what it could not, a sentence each."""
    if explanation.judged_steps:
        yield f"Judged {counted(explanation.judged_steps, 'captured step')}."
    if explanation.skip_reason is None:
        for reason, steps in explanation.skipped_steps:
            yield f"Could not judge {counted(steps, 'captured step')}: {reason}."
    if not explanation.measurements and explanation.skip_reason is None:
        yield (
            "No number was compared with a limit: the recording has nothing for the rule to "
            "measure, or the rule judges the order of events."
        )


_HEADINGS = ("number", "measured", "fires if", "met", "step", "what", "line")


def _rows(explanation: Explanation, signs: Signs, root: str) -> list[tuple[str, ...]]:
    """Return a row for each thing that was measured, its worst step first."""
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for one in explanation.measurements:
        key = (one.number, one.subject, one.site, one.limit, one.fires)
        groups.setdefault(key, []).append(one)
    return [_row(members[0], len(members), signs, root) for members in groups.values()]


def _row(worst: Measurement, steps: int, signs: Signs, root: str) -> tuple[str, ...]:
    sign = ">=" if worst.fires == "above" else "<="
    step = "" if worst.step is None else f"{worst.step}"
    return (
        worst.number,
        figure(worst.value, signs),
        f"{sign} {figure(worst.limit, signs)}",
        "yes" if worst.is_beyond else "no",
        f"{step} (worst of {steps})" if step and steps > 1 else step,
        worst.subject,
        shown_site(worst.site, root),
    )


def _text(explanation: Explanation, recording: str, page: Page) -> Iterator[RenderableType]:
    yield Text(f"{explanation.code} {explanation.name}", style="bold")
    yield page.text(f"{recording}: {_verdict(explanation)}")
    for fact in _facts(explanation):
        yield page.text(fact)
    for finding in explanation.findings:
        where = shown_site(finding.location, page.root)
        yield Padding(page.text(f"{where}  {finding.message}".strip()), (0, 0, 0, 2))
    if not explanation.measurements:
        return
    yield Text()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in _HEADINGS:
        is_number = heading in ("measured", "fires if")
        table.add_column(
            heading,
            justify="right" if is_number else "left",
            no_wrap=heading not in ("what", "line"),
            overflow="fold",
        )
    rows = _rows(explanation, page.signs, page.root)
    for row in rows[:_MOST]:
        table.add_row(*map(page.text, row))
    yield table
    if len(rows) > _MOST:
        yield Text(f"{len(rows) - _MOST:,} more in --output-format json", style="dim")


def _markdown(explanation: Explanation, recording: str, root: str) -> Iterator[str]:
    yield f"**{explanation.code} {explanation.name}** {code(recording)}: {_verdict(explanation)}"
    yield from (f"\n{prose(fact)}" for fact in _facts(explanation))
    if explanation.findings:
        yield ""
    for finding in explanation.findings:
        where = code(shown_site(finding.location, root))
        yield f"- {finding.severity} {where} {prose(finding.message)}"
    if explanation.measurements:
        rows = _rows(explanation, UNICODE, root)[:_MOST]
        yield "\n" + table(_HEADINGS, (map(escape, row) for row in rows))


def _object(explanation: Explanation, recording: str, root: str) -> Object:
    return {
        "schema_version": SCHEMA_VERSION,
        "recording": recording,
        "rule": explanation.code,
        "name": explanation.name,
        "skip_reason": explanation.skip_reason,
        "judged_steps": explanation.judged_steps,
        "skipped_steps": [
            {"reason": reason, "steps": steps} for reason, steps in explanation.skipped_steps
        ],
        "findings": [
            {
                "severity": finding.severity,
                "message": finding.message,
                "location": _location(finding.location, root),
                "step": finding.step,
                "evidence": dict(finding.evidence),
            }
            for finding in explanation.findings
        ],
        "measurements": [
            {
                "number": one.number,
                "value": one.value,
                "limit": one.limit,
                "fires": one.fires,
                "is_beyond": one.is_beyond,
                "subject": one.subject,
                "location": _location(one.site, root),
                "step": one.step,
            }
            for one in explanation.measurements
        ],
    }


def _location(site: Site | None, root: str) -> Object | None:
    return None if site is None else {"file": shown_path(site.file, root), "line": site.line}
