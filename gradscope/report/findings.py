"""Findings and their fixes as blocks of a document, and the facts that rules could not judge."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.style import Style

from gradscope.analysis.report import Report
from gradscope.analysis.view import is_cell, shown_path, shown_site
from gradscope.phrasing import printable
from gradscope.recording.finding import Finding, Fix
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
    fix_text,
    parameter_text,
    unjudged,
    verdict_text,
)
from gradscope.report.page import Page
from gradscope.report.snippets import Snippet, column_of, snippets

_SKIPPED_SHOWN = 10

ShownFinding = tuple[Finding, str]
"""A finding, and the working directory of its run."""

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


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


def render_fixes(
    findings: Sequence[ShownFinding], hidden: Sequence[Finding], console: Console
) -> str:
    """Return the diffs and their results, without a last line break; nothing is written.

    Lines of diffs are not folded and end as in the files: `git apply` can read the text.

    Args:
        findings: Findings with their fixes.
        hidden: Findings with an unsafe fix that was left out.
        console: Decides colour and characters.
    """
    painter = _Painter(console)
    lines = [
        line
        for finding, root in findings
        if finding.fix is not None
        for line in painter.fixed(finding, finding.fix, root)
    ]
    unsafe = {id(one) for one in hidden}
    lines += [
        painter.unfixed(one, root, is_unsafe=id(one) in unsafe)
        for one, root in findings
        if one.fix is None
    ]
    return "\n".join([*lines, closing_text(findings, hidden)])


class _Painter:
    """Words the fixes for a console."""

    def __init__(self, console: Console) -> None:
        self._is_coloured = console.color_system is not None
        # Off a terminal, lines stay whole for the programs that read them.
        self._width = console.width if console.is_terminal else 0
        self._page = Page.of(console, "")

    def fixed(self, finding: Finding, fix: Fix, root: str) -> Iterator[str]:
        """Yield the lines of a finding with a fix, and an empty one."""
        yield self._title(finding, root)
        for line in fix.diff.split("\n"):
            yield self._diff_line(line)
        style = "bold green" if fix.verified else "bold red"
        mark, colon, text = fix_text(fix).partition(":")
        yield self._folded(((mark, style),), self._page.spell(f"{colon}{printable(text)}"))
        yield ""

    def unfixed(self, finding: Finding, root: str, *, is_unsafe: bool) -> str:
        """Return the line of a finding without a fix."""
        in_cell = finding.location is not None and is_cell(finding.location.file)
        mark = "no fix in a notebook:" if in_cell else "no safe fix:" if is_unsafe else "no fix:"
        return self._title(finding, root, (mark, "dim"), (" ", ""))

    def _title(self, finding: Finding, root: str, *marks: tuple[str, str]) -> str:
        label = (f"{finding.severity}[{finding.rule}]", "bold")
        where = shown_site(finding.location, root)
        at = f" at {where}" if where else ""
        message = printable(f"{finding.name}{at}: {finding.message}")
        return self._folded((*marks, label), f" {self._page.spell(message)}")

    def _folded(self, marks: Sequence[tuple[str, str]], text: str) -> str:
        """Return marks with their styles and a text, folded between words on a terminal."""
        plain = "".join(mark for mark, _ in marks)
        if self._width > len(plain):
            text = textwrap.fill(
                plain + text,
                self._width,
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )[len(plain) :]
        return "".join(self._styled(*mark) for mark in marks) + text

    def _diff_line(self, line: str) -> str:
        """Return a line of a diff with all its characters except those that a terminal obeys."""
        body = line.removesuffix("\r")
        shown = "".join(sign if sign == "\t" else printable(sign) for sign in body)
        style = "bold" if line[:3] in ("---", "+++") else _STYLES.get(line[:1], "")
        return self._styled(shown + line[len(body) :], style)

    def _styled(self, text: str, style: str) -> str:
        # Without the console, which would fold long lines: a folded diff cannot be applied.
        return Style.parse(style).render(text) if self._is_coloured and style else text


def closing_text(findings: Iterable[ShownFinding], hidden: Sequence[Finding]) -> str:
    """Return the numbers of fixes in words."""
    fixes = [one.fix for one, _ in findings if one.fix is not None]
    verified = sum(1 for one in fixes if one.verified)
    number = "1 fix" if len(fixes) == 1 else f"{len(fixes)} fixes"
    found = f"{number}, {verified} verified" if fixes else "no fix available"
    if hidden and not fixes:
        return f"no safe fix; {len(hidden)} with --unsafe-fixes"
    return found + (f"; {len(hidden)} more with --unsafe-fixes" if hidden else "")
