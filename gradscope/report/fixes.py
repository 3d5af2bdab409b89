"""The fixes of findings as diffs, with the results of running the edited program."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.style import Style

from gradscope.analysis.view import is_cell, shown_site
from gradscope.phrasing import printable
from gradscope.recording.finding import Finding, Fix
from gradscope.report.finding_phrasing import fix_text
from gradscope.report.page import Page

ShownFinding = tuple[Finding, str]
"""A finding, and the working directory of its run."""

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


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
