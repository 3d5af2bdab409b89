"""Texts and small tables of a page: header, findings with their code, missing parts."""

from collections.abc import Iterable, Iterator
from dataclasses import fields

from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.report.document import Fact, Facts, FindingBlock, Section
from gradscope.report.documents.accumulation import TITLE, Accumulation, headline, remarks
from gradscope.report.documents.attention import attention_sections
from gradscope.report.documents.inspection import (
    header_of,
    overfit_sections,
    parameters_line,
    summary_facts,
)
from gradscope.report.documents.run import part_text
from gradscope.report.finding_phrasing import fix_text, guess_warning, unjudged, verdict_text
from gradscope.report.findings import finding_block

_WIDTH = 100
"""Characters of a line of a section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCell:
    """A cell of a small table."""

    text: str
    style: str = ""
    """Classes of the CSS: `error`, `good`, `code`, `short` for text that is not wrapped."""
    is_number: bool = False
    is_strong: bool = False
    tab: int | None = None
    """Index of the tab that a click on it opens."""
    rule: str = ""
    """The code of the rule whose manual a click on it opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTable:
    """A table of a few rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[SummaryCell, ...], ...]
    caption: str = ""

    @property
    def filled(self) -> tuple[int, ...]:
        """Indices of the columns that are not empty."""
        positions = range(len(self.header))
        return tuple(
            position for position in positions if any(row[position].text for row in self.rows)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCard(FindingBlock):
    """A finding as the template writes it, and what its buttons show."""

    module: int | None
    """Index of its module, which its button selects."""
    step: int | None
    """First step of a run that shows it."""
    tab: int | None = None
    """Index of the tab that shows the tensors of that step."""
    is_mended: bool = False
    """Whether a comparison found that it is gone."""

    @property
    def fix_text(self) -> str:
        """What the edited program showed; empty without a fix."""
        return "" if self.fix is None else fix_text(self.fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTexts:
    """The texts of one report."""

    heading: str
    """Heading: `gradscope inspect`."""
    facts: tuple[Fact, ...] = ()
    verdict: str = ""
    level: Severity | None = None
    """Level of the worst finding."""
    reasons: tuple[str, ...] = ()
    """Reasons for the verdict, one per line."""
    is_judged: bool = True
    """Whether any rule ran."""
    warnings: tuple[str, ...] = ()
    cards: tuple[FindingCard, ...] = ()
    summaries: tuple[SummaryTable, ...] = ()
    sections: tuple[Section, ...] = ()
    """Parts of the text report that no chart shows."""
    folded: tuple[Section, ...] = ()
    """Sections that are collapsed at first."""
    notes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Titles and the lines below them."""


def texts_of(report: Report) -> PageTexts:
    """Return the texts of a report."""
    attention = tuple(one for one in attention_sections(report) if isinstance(one, Section))
    return PageTexts(
        heading=report.target.name,
        facts=tuple(_facts(report)),
        verdict=verdict_text(report),
        level=report.findings[0].severity if report.findings else None,
        is_judged=bool(report.rules.ran),
        warnings=tuple(_warnings(report)),
        cards=tuple(finding_card(finding, report) for finding in report.findings),
        sections=(*overfit_sections(report, _WIDTH), *attention),
        # Who has nothing to mend need not read the logits of each layer.
        folded=() if is_troubled(report.findings) else attention,
        notes=tuple(_notes(report)),
    )


def is_troubled(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is more than a note."""
    return any(finding.severity != "note" for finding in findings)


def finding_card(finding: Finding, report: Report, mark: str = "") -> FindingCard:
    """Return a finding with its code and all that is known of it."""
    block = finding_block(finding, report, standing=mark)
    return FindingCard(
        # `asdict` would turn the objects in the fields into dictionaries.
        **{field.name: getattr(block, field.name) for field in fields(block)},
        module=module_of_finding(finding, report),
        # Only the page of a run has curves in which a step can be shown.
        step=finding.step if report.training_run is not None else None,
    )


def module_of_finding(finding: Finding, report: Report) -> int | None:
    """Return the module of a finding: the innermost one that contains everything it names."""
    paths = {alias: row for row in report.modules for alias in (row.path, *row.aliases)}
    names = list(finding.modules) or [name.rpartition(".")[0] for name in finding.parameters]
    rows = [paths[name] for name in names if name in paths]
    if not rows:
        return None
    above = [_with_parents(row.index, report) for row in rows]
    return next((index for index in above[0] if all(index in others for others in above)), None)


def _with_parents(index: int | None, report: Report) -> list[int]:
    found = []
    while index is not None:
        found.append(index)
        index = report.modules[index].parent
    return found


def _facts(report: Report) -> Iterator[Fact]:
    parameters = Fact("parameters", parameters_line(report))
    numbers = summary_facts(report) if report.training_run is None else (parameters,)
    for block in header_of(report, *numbers):
        if isinstance(block, Facts):
            # A run's captured steps have tabs, which a table lists.
            is_run = report.training_run is not None
            yield from (row for row in block.rows if not (is_run and row.name == "tensors"))


def _warnings(report: Report) -> Iterator[str]:
    if (warning := guess_warning(report.target)) is not None:
        yield warning
    if report.job is not None and report.job.sharded and not report.job.is_joinable:
        yield part_text(report.job)
    run = report.training_run
    if run is not None and run.ending is not None:
        yield run.ending.line


def _notes(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    found = Accumulation.of(report.recording)
    if found is not None:
        times = "×"  # noqa: RUF001 - the sign of multiplication is meant
        yield TITLE, (headline(found, times), *remarks(found))
    if report.skipped:
        yield "Not measured", tuple(f"{item.what}: {item.reason}" for item in report.skipped)
    reasons = unjudged(report.rules.skipped)
    if reasons:
        yield "Not applicable", tuple(f"{codes}: {reason}" for codes, reason in reasons)
    if report.rules.ran:
        yield "Judged", (", ".join(report.rules.ran),)
