"""The page of a check: its result, and a tab for each target."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.check.options import Policy
from gradscope.check.results import (
    CheckedFinding,
    CheckResult,
    Failure,
    Outcome,
    TargetResult,
    exit_code,
    outcome_of,
    reasons,
)
from gradscope.errors import ExitCode
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import SEVERITIES, Severity, at_least
from gradscope.report.document import Fact
from gradscope.report.documents.check import (
    OUTCOMES,
    closing_text,
    failure_text,
    found_text,
    measured_text,
    remarks,
    seeds_text,
    unjudged_everywhere,
    when_text,
)
from gradscope.report.html.page import SIZE_BUDGET, Tab, render_page, within
from gradscope.report.html.phrasing import (
    FindingCard,
    PageTexts,
    SummaryCell,
    SummaryTable,
    finding_card,
    module_of_finding,
)
from gradscope.report.html.report_page import tab_of

_SIGNS: dict[Outcome, str] = {"passed": "✓", "failed": "✗", "unjudged": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTarget:
    """A target of the check, and the index of its tab."""

    result: TargetResult
    outcome: Outcome
    position: int

    @property
    def shown(self) -> int:
        """The run whose charts are shown: that of the worst finding, otherwise the first."""
        return next((item.run for item in self.result.findings), 0)

    @property
    def urgency(self) -> int:
        """Priority of charts: first targets that fail, then those with findings."""
        return 0 if self.outcome != "passed" else 1 if self.result.findings else 2


def target_tab(target: CheckedTarget, name: str) -> Tab:
    """Return the tab of a target, under a short name."""
    title, result = f"{_SIGNS[target.outcome]} {name}", target.result
    if not result.runs:
        texts = PageTexts(
            heading=result.name,
            facts=tuple(_target_facts(target)),
            verdict="Could not be checked.",
            level="error",
            warnings=tuple(_failures(result)),
        )
        return Tab(title=title, texts=texts, charts=())
    run = result.runs[target.shown]
    report = run.report
    tab = tab_of(report, title)
    return replace(tab, texts=_target_texts(target, report, tab.texts))


def _target_texts(target: CheckedTarget, report: Report, texts: PageTexts) -> PageTexts:
    """Return the texts on the shown run, with the findings of the other runs."""
    result = target.result
    worst: Severity | None = next((item.finding.severity for item in result.counted()), None)
    return replace(
        texts,
        heading=result.name,
        facts=(*_target_facts(target), *texts.facts),
        verdict=f"{OUTCOMES[target.outcome].capitalize()}: {found_text(result.findings)}.",
        level="error" if target.outcome == "unjudged" else worst,
        warnings=(*texts.warnings, *_failures(result)),
        cards=tuple(_cards(result, report)),
    )


def _target_facts(target: CheckedTarget) -> Iterator[Fact]:
    yield Fact("outcome", OUTCOMES[target.outcome])
    runs = target.result.runs
    if len(runs) > 1:
        seeds = ", ".join(str(run.recording.target.seed) for run in runs)
        shown = runs[target.shown].recording.target.seed
        why = ", that of the worst finding" if target.result.findings else ""
        yield Fact("seeds", f"{seeds}: numbers and charts are from seed {shown}{why}")


def _failures(result: TargetResult) -> Iterator[str]:
    for failure, seeds in by_cause(result):
        phrase = "seed" if len(seeds) == 1 else "seeds"
        text = f"{phrase} {', '.join(map(str, seeds))}: " if seeds and result.runs else ""
        advice = f" — {failure.help}" if failure.help else ""
        yield f"{text}{failure_text(failure)}{advice}"


def by_cause(result: TargetResult) -> Iterator[tuple[Failure, list[int]]]:
    """Yield why runs could not be judged, each cause once, and under which seeds."""
    found: dict[Failure, list[int]] = {}
    for failure in result.failures:
        seeds = found.setdefault(replace(failure, seed=None), [])
        seeds += [] if failure.seed is None else [failure.seed]
    yield from found.items()


def _cards(result: TargetResult, shown: Report) -> Iterator[FindingCard]:
    for item in result.findings:
        card = finding_card(item.finding, result.report_of(item), _mark(item, result))
        # The run with the finding may be another one than the run whose charts are shown.
        yield replace(card, module=module_of_finding(item.finding, shown))


def _mark(item: CheckedFinding, result: TargetResult) -> str:
    """Return the check's remarks on a finding: seeds, steps, and its state in the baseline."""
    seeds = seeds_text(item, result)
    reported = (
        "known" if item.is_known else "",
        f"worse than in the baseline: {item.worsened}" if item.worsened else "",
        f"seeds {seeds}" if seeds else "",
        when_text(item, result),
    )
    return " · ".join(text for text in reported if text)


_ALONE = "run gradscope check or inspect on this target alone to see them"
_STYLES: dict[Outcome, str] = {"passed": "good", "failed": "error", "unjudged": "error"}


def render_check_html(result: CheckResult, size_budget: int = SIZE_BUDGET) -> str:
    """Return the page of a check, without a last line break.

    Args:
        result: What was found.
        size_budget: Bytes for the data of charts; targets that do not fit are described in words.
    """
    targets = [
        CheckedTarget(result=target, outcome=outcome_of(target, result), position=position)
        for position, target in enumerate(result.targets, start=1)
    ]
    names = _short_names([target.result.name for target in targets])
    tabs = [target_tab(target, name) for target, name in zip(targets, names, strict=True)]
    tabs = within(size_budget, tabs, [target.urgency for target in targets], _ALONE)
    return render_page([_overview(result, targets), *tabs], "gradscope check")


def _short_names(names: Sequence[str]) -> list[str]:
    """Return names for tabs, without folders if they remain different."""
    short = [name.rpartition("/")[2] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def _overview(result: CheckResult, targets: Sequence[CheckedTarget]) -> Tab:
    counts = result.counts()
    levels = [level for level in SEVERITIES if counts[level]]
    is_green = exit_code(result) is ExitCode.OK
    unjudged = tuple(unjudged_everywhere(result))
    return Tab(
        title="check",
        texts=PageTexts(
            heading="gradscope check",
            facts=tuple(_gate_facts(result, targets)),
            warnings=tuple(remarks(result)),
            verdict=closing_text(result),
            level=None if is_green else next(iter(levels), "error"),
            summaries=tuple(_tables(targets)),
            notes=(
                *([("Not applicable", unjudged)] if unjudged else []),
                ("Command", (result.command,)),
            ),
        ),
        charts=(),
    )


def _gate_facts(result: CheckResult, targets: Sequence[CheckedTarget]) -> Iterator[Fact]:
    outcomes = [target.outcome for target in targets]
    counts = [(outcomes.count(outcome), word) for outcome, word in OUTCOMES.items()]
    text = ", ".join(f"{count:,} {word}" for count, word in counts if count)
    yield Fact("targets", text or "none")
    if result.policy is not None:
        yield Fact("gate", _policy_text(result.policy))
        why = ", ".join(reasons(result))
        if why:
            yield Fact("fails on", why)
    yield Fact("exit code", str(int(exit_code(result))))


def _policy_text(policy: Policy) -> str:
    levels = " and ".join(f"{level}s" for level in at_least(policy.fail_level))
    parts = [f"{levels} fail"]
    if policy.max_warnings is not None:
        parts.append(f"{counted(policy.max_warnings, 'warning')} allowed")
    if policy.exit_zero:
        parts.append("--exit-zero lets findings pass")
    return "; ".join(parts)


def _tables(targets: Sequence[CheckedTarget]) -> Iterator[SummaryTable]:
    yield SummaryTable(
        title="Targets",
        header=("", "target", "found", "measured"),
        rows=tuple(_target_row(target) for target in targets),
    )
    failures = [row for target in targets for row in _failure_rows(target)]
    if failures:
        yield SummaryTable(
            title="Could not be checked",
            header=("target", "seeds", "why", "help"),
            rows=tuple(failures),
        )
    counting = [row for target in targets for row in _finding_rows(target, is_known=False)]
    known = [row for target in targets for row in _finding_rows(target, is_known=True)]
    header = ("", "rule", "target", "line", "finding", "seeds", "")
    if counting:
        yield SummaryTable(title="Findings", header=header, rows=tuple(counting))
    if known:
        yield SummaryTable(
            title="Known findings",
            header=header,
            rows=tuple(known),
            caption="In the baseline, not counted.",
        )


def _link(target: CheckedTarget) -> SummaryCell:
    return SummaryCell(text=target.result.name, style="code", tab=target.position)


def _target_row(target: CheckedTarget) -> tuple[SummaryCell, ...]:
    result = target.result
    found = found_text(result.findings) if result.runs else ""
    return (
        SummaryCell(text=OUTCOMES[target.outcome], style=_STYLES[target.outcome], is_strong=True),
        _link(target),
        SummaryCell(text=found),
        SummaryCell(text=measured_text(result), style="soft"),
    )


def _failure_rows(target: CheckedTarget) -> Iterator[tuple[SummaryCell, ...]]:
    for failure, seeds in by_cause(target.result):
        yield (
            _link(target),
            SummaryCell(text=", ".join(map(str, seeds))),
            SummaryCell(text=failure_text(failure)),
            SummaryCell(text=failure.help or "", style="good"),
        )


def _finding_rows(target: CheckedTarget, *, is_known: bool) -> Iterator[tuple[SummaryCell, ...]]:
    items = [item for item in target.result.findings if item.is_known == is_known]
    for item in items:
        finding, report = item.finding, target.result.report_of(item)
        yield (
            SummaryCell(text=finding.severity, style=f"level {finding.severity}", is_strong=True),
            SummaryCell(
                text=f"{finding.rule} {finding.name}", style="code short", rule=finding.rule
            ),
            _link(target),
            SummaryCell(text=shown_site(finding.location, report.target.root), style="code soft"),
            SummaryCell(text=finding.message),
            SummaryCell(text=seeds_text(item, target.result)),
            SummaryCell(text="" if item.worsened is None else f"now worse: {item.worsened}"),
        )
