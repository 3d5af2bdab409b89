"""Reports of every kind in every format."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from gradscope.analysis.clipping import Clipping
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions
from gradscope.check.merging import target_result
from gradscope.check.results import CheckResult, Run
from gradscope.comparison.comparison import Comparison
from gradscope.config.formats import CIFormat, OutputFormat
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from rich.console import Console

    from gradscope.report.document import Document
    from gradscope.report.json_objects import Object

# A builder, a renderer and what they need are imported when they are asked for: `json` needs no
# rich, and `full` no jinja2.


class Subject(ABC):
    """What a report is of, in the forms that formats ask for."""

    @abstractmethod
    def document(self, width: int) -> "Document":
        """Return the blocks, for lines of so many characters."""

    @abstractmethod
    def concise(self) -> str:
        """Return a line a finding, for editors and grep."""

    @abstractmethod
    def whole(self) -> "Object":
        """Return everything as one object of JSON."""

    @abstractmethod
    def lines(self) -> "Iterable[tuple[str, Object]]":
        """Return its parts, each after the kind it is of."""

    @abstractmethod
    def page(self) -> str:
        """Return the page of HTML."""

    @abstractmethod
    def checked(self) -> CheckResult:
        """Return it as the result of a check, for the formats of CI."""

    def markdown(self) -> str:
        """Return the document in Markdown."""
        from gradscope.report.formats.markdown import render_markdown

        return render_markdown(self.document)


def rendered(subject: Subject, output_format: OutputFormat, console: "Console") -> str:
    """Return a report in one of the formats, without a last line break.

    Args:
        subject: What to report on.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`; nothing is written to it.
    """
    match output_format:
        case "full":
            from gradscope.report.formats.text import render_text

            return render_text(subject.document, console)
        case "concise":
            return subject.concise()
        case "json":
            from gradscope.report.json_objects import object_text

            return object_text(subject.whole())
        case "jsonl":
            from gradscope.report.json_objects import lines_text

            return lines_text(subject.lines())
        case "markdown":
            return subject.markdown()
        case "html":
            return subject.page()
        case _:
            return render_ci(subject.checked(), output_format)


@dataclass(frozen=True, slots=True)
class Inspection(Subject):
    """One forward and backward, or a training run."""

    report: Report
    view: ViewOptions

    def document(self, width: int) -> "Document":
        """Return the report."""
        from gradscope.report.inspection import inspection_document

        return inspection_document(self.report, self.view, width)

    def concise(self) -> str:
        """Return a line a finding, else the rows worth looking at."""
        from gradscope.report.concise import render_concise

        return render_concise(self.report, self.view)

    def whole(self) -> "Object":
        """Return the report by `report-1.json`."""
        from gradscope.report.json_format import report_object

        return report_object(self.report)

    def lines(self) -> "Iterable[tuple[str, Object]]":
        """Return its parts."""
        from gradscope.report.json_format import report_lines

        return report_lines(self.report)

    def page(self) -> str:
        """Return the page of this report alone."""
        from gradscope.report.html.render import render_html

        return render_html([self.report])

    def checked(self) -> CheckResult:
        """Return its findings, which no gate judges."""
        return together([self.report])


@dataclass(frozen=True, slots=True)
class ClipReport(Inspection):
    """What clipping does, or would do."""

    clipping: Clipping

    def document(self, width: int) -> "Document":
        """Return what clips, and what other limits would do."""
        from gradscope.report.clipping.document import clipping_document

        return clipping_document(self.report, self.clipping, self.view, width)

    def concise(self) -> str:
        """Return some lines for each line that clips."""
        from gradscope.report.clipping.concise import render_concise

        return render_concise(self.report, self.clipping)

    def page(self) -> str:
        """Return the page on clipping alone."""
        from gradscope.report.html.clip_tab import render_clip_html

        return render_clip_html([self.report])


@dataclass(frozen=True, slots=True)
class Compared(Subject):
    """Two recordings or more side by side."""

    comparison: Comparison
    top: int
    is_brief: bool

    def document(self, width: int) -> "Document":
        """Return what differs, and what a gate makes of it."""
        from gradscope.report.comparison.document import comparison_document

        return comparison_document(self.comparison, width, top=self.top, is_brief=self.is_brief)

    def concise(self) -> str:
        """Return a line a difference."""
        from gradscope.report.comparison.concise import render_concise

        return render_concise(self.comparison, top=self.top)

    def whole(self) -> "Object":
        """Return the comparison by `compare-1.json`."""
        from gradscope.report.comparison.json_format import comparison_object

        return comparison_object(self.comparison)

    def lines(self) -> "Iterable[tuple[str, Object]]":
        """Return its parts."""
        from gradscope.report.comparison.json_format import comparison_lines

        return comparison_lines(self.comparison)

    def page(self) -> str:
        """Return the page of the comparison."""
        from gradscope.report.html.comparison_page import render_comparison_html

        return render_comparison_html(self.comparison)

    def checked(self) -> CheckResult:
        """Refuse: a comparison has its own gate."""
        raise GradscopeError(
            "a comparison cannot be written as github, gitlab, junit or sarif",
            help="--output-format full, concise, json, jsonl, html or markdown",
        )


@dataclass(frozen=True, slots=True)
class Checked(Subject):
    """The result of a check."""

    result: CheckResult
    is_brief: bool

    def document(self, width: int) -> "Document":
        """Return the findings, the targets and the verdict."""
        from gradscope.report.check.document import check_document

        return check_document(self.result, is_brief=self.is_brief)

    def concise(self) -> str:
        """Return a line a finding, and the verdict."""
        from gradscope.report.check.concise import render_concise

        return render_concise(self.result)

    def whole(self) -> "Object":
        """Return the check by `check-1.json`."""
        from gradscope.report.check.json_format import check_object

        return check_object(self.result)

    def lines(self) -> "Iterable[tuple[str, Object]]":
        """Return its parts."""
        from gradscope.report.check.json_format import check_lines

        return check_lines(self.result)

    def markdown(self) -> str:
        """Return the summary of a step of CI, which has a size to keep to."""
        from gradscope.report.ci.step_summary import step_summary

        return step_summary(self.result)

    def page(self) -> str:
        """Return the page of the check."""
        from gradscope.report.html.check_page import render_check_html

        return render_check_html(self.result)

    def checked(self) -> CheckResult:
        """Return the result itself."""
        return self.result


def render(
    report: Report, output_format: OutputFormat, view: ViewOptions, console: "Console"
) -> str:
    """Return a report of one step or of a run; see `rendered`."""
    return rendered(Inspection(report, view), output_format, console)


def render_clip_report(
    report: Report, output_format: OutputFormat, view: ViewOptions, console: "Console"
) -> str:
    """Return the report on clipping; see `rendered`.

    Raises:
        GradscopeError: The recording tells nothing of clipping.
    """
    clipping = Clipping.expected_of(report.recording)
    return rendered(ClipReport(report, view, clipping), output_format, console)


DEFAULT_TOP = 10
"""So many parameters of a comparison are listed, the worst first."""


def render_comparison(
    comparison: Comparison,
    output_format: OutputFormat,
    console: "Console",
    *,
    top: int = DEFAULT_TOP,
    is_brief: bool = False,
) -> str:
    """Return a comparison; see `rendered`.

    Args:
        comparison: What to render.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`.
        top: How many parameters are listed; `json`, `jsonl` and `html` hold all.
        is_brief: Whether `full` and `markdown` leave out what is still there.

    Raises:
        GradscopeError: There is no such format of a comparison.
    """
    return rendered(Compared(comparison, top, is_brief), output_format, console)


def render_check(
    result: CheckResult, output_format: OutputFormat, console: "Console", *, is_brief: bool = False
) -> str:
    """Return the report of a check; see `rendered`.

    Args:
        result: What was found.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`.
        is_brief: Whether `full` leaves out which rules could not judge.
    """
    return rendered(Checked(result, is_brief), output_format, console)


def render_ci(result: CheckResult, output_format: CIFormat) -> str:
    """Return what a check found in a format of CI, without a last line break."""
    match output_format:
        case "github":
            from gradscope.report.ci.github import render_github

            return render_github(result)
        case "gitlab":
            from gradscope.report.ci.gitlab import render_gitlab

            return render_gitlab(result)
        case "junit":
            from gradscope.report.ci.junit import render_junit

            return render_junit(result)
        case "sarif":
            from gradscope.report.ci.sarif import render_sarif

            return render_sarif(result)
    assert_never(output_format)


def together(reports: Sequence[Report]) -> CheckResult:
    """Return some reports as the result of a check that gates nothing."""
    return CheckResult(
        version=reports[0].version,
        command=reports[0].command,
        targets=tuple(
            target_result(
                report.target.name, [Run(recording=report.recording, verdict=report.rules)]
            )
            for report in reports
        ),
    )
