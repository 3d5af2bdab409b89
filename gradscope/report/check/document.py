"""A check as a document: findings with their code, then a line a target and the verdict."""

from collections.abc import Iterator

from gradscope.check.results import CheckResult, Outcome, TargetResult, exit_code, outcome_of
from gradscope.errors import ExitCode
from gradscope.report.check.phrasing import (
    closing_text,
    failure_text,
    found_text,
    measured_text,
    remarks,
    seeds_text,
    unjudged_everywhere,
    when_text,
)
from gradscope.report.document import (
    Block,
    Column,
    Document,
    Fact,
    Facts,
    Findings,
    Mark,
    Note,
    Points,
    Section,
    Table,
    Value,
    Word,
    section,
)
from gradscope.report.findings import finding_block
from gradscope.report.next_command import guessing, next_of_check

OUTCOMES: dict[Outcome, str] = {"passed": "passed", "failed": "failed", "unjudged": "not checked"}
_MARKS: dict[Outcome, Mark] = {"passed": "good", "failed": "bad", "unjudged": "bad"}


def check_document(result: CheckResult, width: int, *, is_brief: bool) -> Document:
    """Return the findings of each target, and whether the check passes.

    Args:
        result: What was found.
        width: Of a line; there is nothing here that is drawn in it.
        is_brief: Whether targets that pass and rules that could not judge are left out.
    """
    lines = () if is_brief else tuple(unjudged_everywhere(result))
    is_green = exit_code(result) is ExitCode.OK
    return Document(
        program="",
        subject="",
        header=(),
        blocks=(
            *_findings(result),
            *_targets(result, is_brief=is_brief),
            *_advice(result),
            *section("Not applicable", [Points(lines)] if lines else []),
            *section("", [Note(remark) for remark in remarks(result)]),
        ),
        closing=(Note(Word(closing_text(result), "good" if is_green else "bad")),),
        next_command=next_of_check(result),
        shows_next=bool(guessing(result)),
    )


def _findings(result: CheckResult) -> Iterator[Section]:
    for target in result.targets:
        found = tuple(
            finding_block(
                item.finding,
                target.report_of(item),
                beside=(
                    ("when", when_text(item, target)),
                    ("seeds", seeds_text(item, target)),
                    ("baseline", f"known, now worse: {item.worsened}" if item.worsened else ""),
                ),
            )
            for item in target.counted()
        )
        title = target.name if len(result.targets) > 1 else ""
        yield from section(title, [Findings(found=found)] if found else [])


def _targets(result: CheckResult, *, is_brief: bool) -> Iterator[Block]:
    """Yield a row per target: its result, and its measurements or the reason for having none."""
    rows: list[tuple[Value, ...]] = []
    for target in result.targets:
        outcome = outcome_of(target, result)
        if not (is_brief and outcome == "passed"):
            mark = Word(OUTCOMES[outcome], _MARKS[outcome])
            rows.append((mark, Word(target.name, "strong"), "; ".join(_details(target))))
    if rows:
        yield Table(
            columns=(Column(), Column(title="target", kind="name"), Column(title="found")),
            rows=tuple(rows),
            is_plain=True,
        )


def _advice(result: CheckResult) -> Iterator[Block]:
    """Yield what to do about targets that could not be checked, equal advice once."""
    advice = dict.fromkeys(
        failure.help for target in result.targets for failure in target.failures if failure.help
    )
    if advice:
        yield Facts(tuple(Fact("help", text) for text in advice))


def _details(target: TargetResult) -> Iterator[str]:
    for failure in target.failures:
        seed = "" if failure.seed is None or len(target.failures) == 1 else f"seed {failure.seed}: "
        yield f"{seed}{failure_text(failure)}"
    if target.runs:
        yield found_text(target.findings)
        yield measured_text(target)
