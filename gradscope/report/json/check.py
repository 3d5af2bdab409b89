"""A check as JSON, by `gradscope/schemas/check-1.json`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from gradscope.analysis.report import Report
from gradscope.check.results import (
    CheckResult,
    Outcome,
    TargetResult,
    exit_code,
    outcome_of,
    reasons,
)
from gradscope.recording.finding import Severity
from gradscope.report.finding_phrasing import next_of_check
from gradscope.report.json import parts
from gradscope.report.json.parts import Environment, Meta, Rules, Subject, Summary
from gradscope.report.json.sections import Ranks
from gradscope.report.json.shape import INLINE, Count, Named, Object, Of, Shape, Within


class Counts(Shape):
    """Numbers of findings by level."""

    error: Annotated[Count, Of(lambda counts, _: counts["error"])]
    warning: Annotated[Count, Of(lambda counts, _: counts["warning"])]
    note: Annotated[Count, Of(lambda counts, _: counts["note"])]


def _outcome(result: CheckResult, _: object) -> Outcome:
    outcomes = {outcome_of(target, result) for target in result.targets}
    is_unjudged = "unjudged" in outcomes or not outcomes
    return "unjudged" if is_unjudged else "failed" if any(reasons(result)) else "passed"


class Gate(Shape):
    """Whether the check passes, and its limits."""

    outcome: Annotated[Outcome, Of(_outcome)]
    exit_code: Annotated[Literal[0, 1, 2], Of(lambda result, _: int(exit_code(result)))]
    reasons: Annotated[
        tuple[str, ...], Of(lambda result, _: reasons(result)), "Why it fails, in words."
    ]
    fail_level: Annotated[Severity | None, Of("policy.fail_level")]
    max_warnings: Annotated[Count | None, Of("policy.max_warnings")]
    exit_zero: Annotated[
        bool, Of(lambda result, _: bool(result.policy and result.policy.exit_zero))
    ]
    counts: Annotated[
        Counts, Of(lambda result, _: result.counts()), "Findings that count, known ones left out."
    ]
    stale: Annotated[tuple[str, ...], "What the baseline holds and nothing shows any more."]
    unmatched: Annotated[tuple[str, ...], "Patterns of limits that mean no module of any target."]


class Failure(Shape):
    """Why a run could not be judged."""

    what: str
    cause: str | None
    help: str | None
    seed: int | None


class RunRanks(Shape):
    """The ranks of a run."""

    ranks: Annotated[Ranks, Of("job"), "Of a distributed job; missing for a single process."]


def _of_job(report: Report, _: Report) -> Report | None:
    return None if report.job is None else report


class Run(Shape, grows=True):
    """One run of a target."""

    target: Subject
    environment: Environment
    summary: Summary
    rules: Rules
    of_ranks: Annotated[RunRanks | None, INLINE, Of(_of_job)]


def _runs(target: TargetResult, _: CheckResult) -> Iterator[Within]:
    for run in target.runs:
        report = run.report
        yield Within(report, report)


class Target(Shape, grows=True):
    """A target, and the results of its runs."""

    name: str
    outcome: Annotated[Outcome, Of(outcome_of)]
    failures: Annotated[tuple[Failure, ...], "Why runs could not be judged."]
    runs: Annotated[tuple[Run, ...], Of(_runs)]


class Finding(Shape):
    """A finding of a target, as its worst run shows it."""

    target: Annotated[str, Of(lambda pair, _: pair[0].name), "The name of one of `targets`."]
    seeds: Annotated[
        tuple[int | None, ...],
        Of(lambda pair, _: pair[1].seeds),
        "Seeds of the runs with the finding; other fields are those of its worst run.",
    ]
    known: Annotated[
        bool,
        Of(lambda pair, _: pair[1].is_known),
        "Whether the baseline hides it: it does not count.",
    ]
    worsened: Annotated[
        str | None,
        Of(lambda pair, _: pair[1].worsened),
        "How it became worse than the baseline allows.",
    ]
    found: Annotated[parts.Finding, INLINE, Of(lambda pair, _: pair[1].finding)]


def _findings(result: CheckResult, _: CheckResult) -> Iterator[Within]:
    for target in result.targets:
        for item in target.findings:
            yield Within((target, item), target.report_of(item))


class Check(Shape, grows=True):
    """The result of a check. Findings are those of all targets."""

    meta: Annotated[Meta, INLINE, Of()]
    gate: Annotated[Gate, Of()]
    targets: tuple[Target, ...]
    findings: Annotated[tuple[Finding, ...], Of(_findings)]
    next_command: Annotated[
        str | None,
        Named("next"),
        Of(lambda result, _: next_of_check(result) or None),
        "Command to run next; null where there is none.",
    ]


LINES: Mapping[str, str] = {"gate": "gate", "targets": "target", "findings": "finding"}
"""Kinds of lines by key, in their order."""


def check_object(result: CheckResult) -> Object:
    """Return the whole check."""
    return Check.write(result, result)
