"""Findings as blocks of a document, and the facts that rules could not judge."""

from dataclasses import replace

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path, shown_site
from gradscope.recording.finding import Finding
from gradscope.report.document import (
    Fact,
    FindingBlock,
    Findings,
    Line,
    Points,
    Section,
    Word,
    more,
    section,
)
from gradscope.report.finding_phrasing import (
    batch_text,
    consequence_text,
    evidence_text,
    parameter_text,
    unjudged,
    verdict_text,
)
from gradscope.report.snippets import Snippet, column_of, snippets

_SKIPPED_SHOWN = 10


def findings_of(report: Report) -> tuple[Findings, ...]:
    """Return the findings of a report and the verdict; nothing if no rule was requested."""
    verdict = verdict_text(report)
    if not verdict:
        return ()
    head, colon, tail = verdict.partition(":")
    worst = report.findings[0].severity if report.findings else None
    mark = worst or ("good" if report.rules.ran else "strong")
    return (
        Findings(
            found=tuple(finding_block(finding, report) for finding in report.findings),
            verdict=(Word(head, mark), Word(colon + tail, "soft")),
        ),
    )


def finding_block(
    finding: Finding,
    report: Report,
    *,
    beside: tuple[tuple[str, str], ...] = (),
    standing: str = "",
    is_brief: bool = False,
) -> FindingBlock:
    """Return a finding with its code and all that is known of it.

    Args:
        finding: What was found.
        report: Of the recording it was found in.
        beside: Names and texts of further details, of which empty ones are left out.
        standing: What a comparison says of it.
        is_brief: Whether a line is enough.
    """
    root = report.target.root
    details = (
        ("parameters", parameter_text(finding, report)),
        ("measured", evidence_text(finding)),
        ("batch", batch_text(finding)),
        ("explains", consequence_text(finding)),
        *beside,
    )
    return FindingBlock(
        severity=finding.severity,
        rule=finding.rule,
        name=finding.name,
        message=finding.message,
        location=shown_site(finding.location, root),
        column=column_of(finding.location, report.recording),
        target=report.target.name,
        source="" if finding.location is None else finding.location.source,
        snippets=tuple(_shown(one, root) for one in snippets(finding, report.recording)),
        details=tuple(Fact(name, Word(text)) for name, text in details if text),
        remedy=finding.remedy,
        standing=standing,
        is_brief=is_brief,
        fix=finding.fix,
    )


def _shown(snippet: Snippet, root: str) -> Snippet:
    return replace(snippet, file=shown_path(snippet.file, root))


def missing_parts(report: Report) -> tuple[Section, ...]:
    """Return what was not measured, and the rules that could not judge, with their reasons."""
    skipped = [(item.what, item.reason) for item in report.skipped]
    return (
        *listing("Not measured", skipped),
        *listing("Not applicable", unjudged(report.rules.skipped)),
    )


def listing(title: str, items: list[tuple[str, str]]) -> tuple[Section, ...]:
    """Return names and their reasons under a title, the first of them; nothing without any."""
    if not items:
        return ()
    lines: list[Line] = [(Word(what, "code"), f": {reason}") for what, reason in items]
    hidden = more(len(lines) - _SKIPPED_SHOWN, "more: --output-format json")
    return section(title, [Points((*lines[:_SKIPPED_SHOWN], *hidden))])
