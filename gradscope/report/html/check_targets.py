"""The sheet of a target that was checked: its findings, and the pictures of its worst run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradscope.analysis.report import Report
from gradscope.check.results import CheckedFinding, Failure, Outcome, TargetResult
from gradscope.recording.finding import Severity
from gradscope.report.gate.reports import with_reports
from gradscope.report.gate.words import failure_text, found_text, seeds_text, when_text
from gradscope.report.html.picture import Sheet
from gradscope.report.html.sheets import sheet_of
from gradscope.report.html.words import Fact, FindingCard, Words, finding_card, module_of_finding

OUTCOMES: dict[Outcome, str] = {"passed": "passed", "failed": "failed", "unjudged": "not judged"}
_SIGNS: dict[Outcome, str] = {"passed": "✓", "failed": "✗", "unjudged": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTarget:
    """A target of the check, and its place among the sheets."""

    result: TargetResult
    outcome: Outcome
    place: int

    @property
    def shown(self) -> int:
        """The run whose pictures are shown: that of the worst finding, else the first."""
        return next((item.run for item in self.result.findings), 0)

    @property
    def urgency(self) -> int:
        """What pictures are given room by: first to targets that fail, then to findings."""
        return 0 if self.outcome != "passed" else 1 if self.result.findings else 2


def target_sheet(target: CheckedTarget, name: str) -> Sheet:
    """Return the sheet of a target, under a short name."""
    title, result = f"{_SIGNS[target.outcome]} {name}", target.result
    if not result.runs:
        words = Words(
            heading=result.name,
            facts=tuple(_target_facts(target)),
            verdict="Could not be judged.",
            level="error",
            warnings=tuple(_failures(result)),
        )
        return Sheet(title=title, words=words, pictures=())
    run = result.runs[target.shown]
    report = Report.from_recording(run.recording, run.verdict)
    sheet = sheet_of(report, title)
    return replace(sheet, words=_target_words(target, report, sheet.words))


def _target_words(target: CheckedTarget, report: Report, words: Words) -> Words:
    """Return the words on the run that is shown, and in them what the other runs found."""
    result = target.result
    worst: Severity | None = next((item.finding.severity for item in result.counted()), None)
    return replace(
        words,
        heading=result.name,
        facts=(*_target_facts(target), *words.facts),
        verdict=f"{OUTCOMES[target.outcome].capitalize()}: {found_text(result.findings)}.",
        level="error" if target.outcome == "unjudged" else worst,
        warnings=(*words.warnings, *_failures(result)),
        cards=tuple(_cards(result, report)),
    )


def _target_facts(target: CheckedTarget) -> Iterator[Fact]:
    yield Fact(name="outcome", text=OUTCOMES[target.outcome])
    runs = target.result.runs
    if len(runs) > 1:
        seeds = ", ".join(str(run.recording.target.seed) for run in runs)
        shown = runs[target.shown].recording.target.seed
        why = ", that of the worst finding" if target.result.findings else ""
        yield Fact(name="seeds", text=f"{seeds}: numbers and pictures are of seed {shown}{why}")


def _failures(result: TargetResult) -> Iterator[str]:
    for failure, seeds in by_cause(result):
        words = "seed" if len(seeds) == 1 else "seeds"
        told = f"{words} {', '.join(map(str, seeds))}: " if seeds and result.runs else ""
        advice = f" — {failure.help}" if failure.help else ""
        yield f"{told}{failure_text(failure)}{advice}"


def by_cause(result: TargetResult) -> Iterator[tuple[Failure, list[int]]]:
    """Yield why runs could not be judged, each cause once, and under which seeds."""
    found: dict[Failure, list[int]] = {}
    for failure in result.failures:
        seeds = found.setdefault(replace(failure, seed=None), [])
        seeds += [] if failure.seed is None else [failure.seed]
    yield from found.items()


def _cards(result: TargetResult, shown: Report) -> Iterator[FindingCard]:
    for item, report in with_reports(result, result.findings):
        card = finding_card(item.finding, report, _mark(item, result))
        # The run that shows it need not be the one whose pictures are shown.
        yield replace(card, module=module_of_finding(item.finding, shown))


def _mark(item: CheckedFinding, result: TargetResult) -> str:
    """Return what the check tells of a finding: seeds, steps, and what the baseline knows."""
    seeds = seeds_text(item, result)
    told = (
        "known" if item.is_known else "",
        f"now worse than known: {item.worsened}" if item.worsened else "",
        f"seeds {seeds}" if seeds else "",
        when_text(item, result),
    )
    return " · ".join(text for text in told if text)
