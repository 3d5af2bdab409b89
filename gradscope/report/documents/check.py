"""A check as a document: findings with their code, then a line a target and the verdict."""

import math
from collections.abc import Iterable, Iterator

from gradscope.analysis.norms import total_norm
from gradscope.analysis.recording_index import first_step
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
from gradscope.phrasing import counted
from gradscope.recording.records import Recording, StepRecord
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
from gradscope.report.documents.accumulation import Accumulation, headline
from gradscope.report.finding_phrasing import guessing, level_counts, next_of_check, unjudged
from gradscope.report.findings import finding_block
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE

_SEEDS_SHOWN = 5

OUTCOMES: dict[Outcome, str] = {"passed": "passed", "failed": "failed", "unjudged": "not checked"}

_MARKS: dict[Outcome, Mark] = {"passed": "good", "failed": "bad", "unjudged": "bad"}


def found_text(items: Iterable[CheckedFinding]) -> str:
    """Return `2 errors, 1 warning`; known findings apart; `no findings` without any."""
    found = list(items)
    words = level_counts(item.finding for item in found if not item.is_known)
    known = sum(item.is_known for item in found)
    text = ", ".join(words) or ("no new findings" if known else "no findings")
    return f"{text}, {known:,} known" if known else text


def seeds_text(item: CheckedFinding, target: TargetResult) -> str:
    """Return the seeds that show a finding as text; empty if there was only one run."""
    runs, seeds = len(target.runs), item.seeds
    if runs == 1:
        return ""
    if len(seeds) == runs:
        return f"all {runs:,}"
    shown = ", ".join(str(seed) for seed in seeds[:_SEEDS_SHOWN])
    more = len(seeds) - _SEEDS_SHOWN
    return f"{len(seeds):,} of {runs:,}: {shown}{f' and {more:,} more' if more > 0 else ''}"


def measured_text(target: TargetResult) -> str:
    """Return a target's number of parameters, their norm and the rules that ran; may be empty."""
    if not target.runs:
        return ""
    recordings = [run.recording for run in target.runs]
    parts = [counted(len(recordings[0].parameters), "parameter")]
    parts += _training_texts(recordings[0])
    norms = [norm for norm in map(global_norm, recordings) if norm is not None]
    if norms:
        parts.append(f"global gradient norm {_span(norms)}")
    if len(recordings) > 1:
        parts.append(counted(len(recordings), "seed"))
    parts.append(counted(len(target.runs[0].verdict.ran), "rule"))
    return ", ".join(parts)


def _training_texts(recording: Recording) -> Iterator[str]:
    """Yield how a target was trained before the judged step, and why it was not trained on."""
    steps = training_steps(recording)
    if steps:
        yield f"trained {counted(len(steps), 'step')} with {steps[0].optimizer}"
    for skipped in recording.skipped:
        if "training step" in skipped.what:
            yield f"without {skipped.what} ({skipped.reason})"


def training_steps(recording: Recording) -> list[StepRecord]:
    """Return the steps that led to the judged one."""
    return [step for step in recording.steps if step.kind == "training"]


def when_text(item: CheckedFinding, target: TargetResult) -> str:
    """Return after how many training steps a finding appears; empty if there were none."""
    steps = len(training_steps(target.runs[item.run].recording))
    return f"after {counted(steps, 'training step')}" if steps else ""


def _span(norms: list[float]) -> str:
    # What `min` and `max` make of a NaN depends on its position.
    if any(math.isnan(norm) for norm in norms):
        return figure(math.nan)
    ends = [figure(norm) for norm in (min(norms), max(norms))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def global_norm(recording: Recording) -> float | None:
    """Return the norm over all gradients of the step that was judged; None without any."""
    stats = first_step(recording).parameter_stats.values()
    return total_norm(stat.gradient.norm for stat in stats if stat.gradient is not None)


def failure_text(failure: Failure) -> str:
    """Return why a run could not be judged, in one line, without the advice."""
    cause = f": {failure.cause}" if failure.cause else ""
    return " ".join(f"{failure.what}{cause}".split())


def ignored_count(result: CheckResult) -> int:
    """Return how many findings the configuration hides by module, in the run with most of them."""
    return sum(
        max((run.verdict.ignored for run in target.runs), default=0) for target in result.targets
    )


def closing_text(result: CheckResult) -> str:
    """Return whether the check passes, and why not, in a sentence."""
    targets = result.targets
    unjudged = sum(outcome_of(target, result) == "unjudged" for target in targets)
    found = found_text(item for target in targets for item in target.findings)
    checked = counted(len(targets), "target")
    if unjudged:
        what = "the target" if len(targets) == 1 else f"{unjudged:,} of {checked}"
        beside = "" if found.startswith("no ") else f"; found {found}"
        return f"Could not check {what}{beside}."
    why = ", ".join(reasons(result))
    if why:
        demoted = "" if exit_code(result) else "; --exit-zero ignores it"
        return f"Failed: {why}{demoted}."
    return f"Passed: {found} in {checked}."


def remarks(result: CheckResult) -> Iterator[str]:
    """Yield remarks on hidden findings, and on settings without effect."""
    yield from _accumulations(result)
    ignored = ignored_count(result)
    if ignored:
        yield f"{counted(ignored, 'finding')} ignored by per-module-ignores."
    for pattern in result.unmatched:
        yield f"No module matches `{pattern}`, which has a gradient norm limit."
    for entry in result.stale:
        yield f"In the baseline, but no longer found: {entry}."
    if result.stale:
        yield "Use --prune-baseline to remove stale entries."


def _accumulations(result: CheckResult) -> Iterator[str]:
    """Yield how the micro-batches of each target add up, if that was requested."""
    for target in result.targets:
        for run in target.runs[:1]:
            found = Accumulation.of(run.recording)
            if found is not None:
                yield f"{target.name}, {headline(found, UNICODE.times)}."


def unjudged_rules(target: TargetResult) -> list[tuple[str, str]]:
    """Return the codes of the rules that could not judge a target, and the reason."""
    return unjudged(target.runs[0].verdict.skipped) if target.runs else []


def unjudged_everywhere(result: CheckResult) -> Iterator[str]:
    """Yield the rules that could not judge, by reason, and their targets if these are not all."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for target in result.targets:
        for codes, reason in unjudged_rules(target):
            by_reason.setdefault((codes, reason), []).append(target.name)
    for (codes, reason), names in by_reason.items():
        where = "" if len(names) == len(result.targets) else f" ({', '.join(names)})"
        yield f"{codes}: {reason}{where}"


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
