"""What a sheet tells in words: the header, the findings with their code, and what was not seen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradscope.analysis.captured_steps import steps_text
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path, shown_site
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, Severity
from gradscope.report.accumulation import TITLE, Accumulation, headline, remarks
from gradscope.report.finding_phrasing import (
    SYNTHETIC_LOSS,
    consequence_text,
    evidence_text,
    parameter_text,
    training_text,
    unjudged,
    verdict_text,
)
from gradscope.report.html.summary_table import SummaryTable
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE
from gradscope.report.run.phrasing import length_text, optimizer_text
from gradscope.report.text_findings import Snippet, snippets


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line of the header."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCard:
    """A finding as the template writes it."""

    severity: Severity
    rule: str
    name: str
    message: str
    location: str
    """`file:line`; empty where no line could be told."""
    snippets: tuple[Snippet, ...]
    """Their files are shown as they are: paths relative to the working directory."""
    details: tuple[Fact, ...]
    remedy: str
    module: int | None
    """The module it is about, which its button selects."""
    step: int | None
    """The step of a run that shows it first."""
    tab: int | None = None
    """The place among the page's sheets of the one that shows that step's tensors."""
    mark: str = ""
    """What a check adds to it, as under which seeds it was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What is told of one thing reported on."""

    heading: str
    """What it is: `gradscope inspect`."""
    facts: tuple[Fact, ...] = ()
    verdict: str = ""
    level: Severity | None = None
    """Level of the worst finding."""
    reasons: tuple[str, ...] = ()
    """What the verdict is made of, line by line."""
    is_judged: bool = True
    """Whether any rule ran."""
    warnings: tuple[str, ...] = ()
    cards: tuple[FindingCard, ...] = ()
    summaries: tuple[SummaryTable, ...] = ()
    notes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Titles and the lines below them."""


def words_of(report: Report) -> Words:
    """Return what is told of a report."""
    run = report.training_run
    return Words(
        heading=report.target.name,
        facts=tuple(_facts(report) if run is None else _run_facts(report)),
        verdict=verdict_text(report),
        level=report.findings[0].severity if report.findings else None,
        is_judged=bool(report.rules.ran),
        warnings=tuple(_warnings(report)),
        cards=tuple(finding_card(finding, report) for finding in report.findings),
        notes=tuple(_notes(report)),
    )


def finding_card(finding: Finding, report: Report, mark: str = "") -> FindingCard:
    """Return a finding with its code and all that is known of it."""
    root = report.target.root
    details = (
        ("parameters", parameter_text(finding, report)),
        ("measured", evidence_text(finding)),
        ("explains", consequence_text(finding)),
    )
    return FindingCard(
        severity=finding.severity,
        rule=finding.rule,
        name=finding.name,
        message=finding.message,
        location=shown_site(finding.location, root),
        snippets=tuple(_shown(one, root) for one in snippets(finding, report.recording)),
        details=tuple(Fact(name=name, text=text) for name, text in details if text),
        remedy=finding.remedy,
        module=module_of_finding(finding, report),
        step=finding.step if report.training_run is not None else None,
        mark=mark,
    )


def module_of_finding(finding: Finding, report: Report) -> int | None:
    """Return the module that a finding is about: the innermost that holds all that it names."""
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


def _shown(snippet: Snippet, root: str) -> Snippet:
    return Snippet(
        file=shown_path(snippet.file, root),
        line=snippet.line,
        function=snippet.function,
        lines=snippet.lines,
        message=snippet.message,
    )


def _facts(report: Report) -> Iterator[Fact]:
    target, summary, graph = report.target, report.summary, report.graph
    yield Fact(name="model", text=f"{target.model} in {target.mode} mode")
    yield Fact(name="batch", text=target.batch)
    yield Fact(name="loss", text=f"{_number(summary.loss)} from {target.loss}")
    if target.optimizer:
        yield Fact(name="optimizer", text=target.optimizer)
    if report.training:
        yield Fact(name="trained", text=training_text(report, "→", _number))
    yield Fact(name="parameters", text=_parameters(report))
    yield Fact(name="gradient", text=f"global norm {_number(summary.grad_norm)}")
    structure = [counted(graph.nodes, "node"), counted(graph.edges, "edge")]
    yield Fact(name="graph", text=f"{', '.join(structure)}, depth {graph.depth:,}")
    seed = [] if target.seed is None else [f"seed {target.seed}"]
    yield Fact(name="run", text=_joined([*seed, *_machine(report)]))


def _run_facts(report: Report) -> Iterator[Fact]:
    run = report.training_run
    if run is None:
        return
    for row in run.optimizers:
        yield Fact(name="optimizer", text=optimizer_text(row, run))
    yield Fact(name="parameters", text=_parameters(report))
    yield Fact(name="run", text=_joined([length_text(run), *_machine(report)]))
    if run.captured_steps:
        steps = steps_text(row.step for row in run.captured_steps)
        yield Fact(name="tensors", text=f"seen of {steps}")


def _machine(report: Report) -> list[str]:
    return [report.environment.device, f"torch {report.environment.torch}"]


def _joined(words: Iterable[str]) -> str:
    return " · ".join(word for word in words if word)


def _parameters(report: Report) -> str:
    summary = report.summary
    counts = (
        (summary.zero, "zero"),
        (summary.none, "without gradient"),
        (summary.unknown, "not measured"),
        (summary.frozen, "frozen"),
        (summary.nonfinite_parameters, "non-finite"),
    )
    troubles = [f"{count:,} {what}" for count, what in counts if count]
    size = f"{counted(summary.numel, 'element')} in {counted(summary.parameters, 'tensor')}"
    return ", ".join([size, *troubles])


def _warnings(report: Report) -> Iterator[str]:
    if report.target.synthetic_loss:
        yield SYNTHETIC_LOSS
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


def _number(value: float | None) -> str:
    return figure(value, UNICODE)
