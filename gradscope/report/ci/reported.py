"""What CI formats say of findings and failures: one list for all of them."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradscope.errors import ExitCode
from gradscope.gate.decision import exit_code
from gradscope.gate.results import CheckedFinding, CheckResult, Failure, TargetResult
from gradscope.recording.finding import Severity
from gradscope.recording.records import Recording
from gradscope.report.ci.places import Placement, placement
from gradscope.report.figures import counted
from gradscope.report.finding_words import SEVERITIES, code_ranges, concerned_text, consequence_text
from gradscope.report.names import printable
from gradscope.rules.fingerprint import unique_fingerprints

_FAILURE_LINES = 40
_STALE_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFinding:
    """A finding of a check, with all that a format says of it; texts are printable."""

    target: TargetResult
    item: CheckedFinding
    placement: Placement
    identity: str
    """Unique in the check, and the same from check to check; 32 hexadecimal digits."""
    statement: str
    """What is wrong, with the parameters concerned."""
    details: tuple[str, ...]
    """A line each: under which seeds it is seen, what it explains."""
    help: str
    is_alone: bool
    """Whether the check has no other target."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The details, with what the place and the target need words for."""
        target = "" if self.is_alone else printable(f"target: {self.target.name}")
        return tuple(filter(None, (self.placement.remark, target, *self.details)))

    @property
    def recording(self) -> Recording:
        """The run in which the finding is worst."""
        return self.target.runs[self.item.run].recording

    @property
    def severity(self) -> Severity:
        """Its level."""
        return self.item.finding.severity

    @property
    def code(self) -> str:
        """The rule's code."""
        return self.item.finding.rule

    @property
    def rule(self) -> str:
        """The rule's code and name: `GS201 gradient-cut`."""
        return f"{self.item.finding.rule} {self.item.finding.name}"

    @property
    def spot(self) -> str:
        """Where it is shown, as `file:line`."""
        return self.placement.place.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFailure:
    """Why a run could not be judged; texts are printable, but for line breaks in `details`."""

    target: TargetResult
    statement: str
    details: tuple[str, ...]
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTarget:
    """What is said of a target."""

    target: TargetResult
    findings: tuple[ReportedFinding, ...]
    """In the target's order, known ones included."""
    failures: tuple[ReportedFailure, ...]

    @property
    def name(self) -> str:
        """As the user wrote it, printable."""
        return printable(self.target.name)


def reported(result: CheckResult) -> tuple[ReportedTarget, ...]:
    """Return what is said of each target, in their order."""
    is_alone = len(result.targets) == 1
    alike = Counter[str]()
    found = []
    for target in result.targets:
        # Two recordings may be of one name.
        alike[target.name] += 1
        key = f"{target.name}\0{alike[target.name]}"
        fingerprints = unique_fingerprints([item.finding for item in target.findings])
        found.append(
            ReportedTarget(
                target=target,
                findings=tuple(
                    _finding(target, item, _identity(key, fingerprint), is_alone=is_alone)
                    for item, fingerprint in zip(target.findings, fingerprints, strict=True)
                ),
                failures=tuple(_failures(target, key)),
            )
        )
    return tuple(found)


def worst_first(targets: Iterable[ReportedTarget]) -> list[ReportedFinding]:
    """Return the findings of all targets, but for known ones."""
    found = [one for target in targets for one in target.findings if not one.item.is_known]
    return sorted(found, key=lambda one: SEVERITIES.index(one.severity))


def _finding(
    target: TargetResult, item: CheckedFinding, identity: str, *, is_alone: bool
) -> ReportedFinding:
    finding, recording = item.finding, target.runs[item.run].recording
    concerned = concerned_text(finding, tuple(one.name for one in recording.parameters))
    consequences = consequence_text(finding)
    details = (
        seeds_text(item, target),
        f"worse than the baseline allows: {item.worsened}" if item.worsened else "",
        f"explains: {consequences}" if consequences else "",
    )
    return ReportedFinding(
        target=target,
        item=item,
        placement=placement(finding, recording),
        identity=identity,
        statement=printable(f"{finding.message}{f' [{concerned}]' if concerned else ''}"),
        details=tuple(printable(line) for line in details if line),
        help=printable(finding.remedy),
        is_alone=is_alone,
    )


def _identity(*parts: str) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def seeds_text(item: CheckedFinding, target: TargetResult) -> str:
    """Return under which seeds a finding is seen; empty where the target ran but once."""
    runs = len(target.runs)
    if runs < 2:
        return ""
    if len(item.seeds) == runs:
        return f"in all of {runs:,} runs"
    seeds = ", ".join(str(seed) for seed in item.seeds if seed is not None)
    named = f" (seed {seeds})" if seeds else ""
    return f"in {len(item.seeds):,} of {counted(runs, 'run')}{named}"


def _failures(target: TargetResult, key: str) -> Iterator[ReportedFailure]:
    failures = target.failures
    if not failures and not target.runs:
        failures = (Failure(what="it was not run"),)
    for place, failure in enumerate(failures):
        seed = "" if failure.seed is None else f", seed {failure.seed}"
        lines = _lines(failure.cause)
        yield ReportedFailure(
            target=target,
            statement=printable(
                f"could not judge {target.name}{seed}: {' '.join(failure.what.split())}"
            ),
            details=(
                *(f"cause: {line}" if not number else line for number, line in enumerate(lines)),
                *(f"help: {line}" for line in _lines(failure.help)),
            ),
            identity=_identity(key, "failure", str(place), failure.what),
        )


def _lines(text: str | None) -> list[str]:
    """Return the lines of a text; of a long one the last, which say most in a traceback."""
    lines = [printable(line.expandtabs(4)) for line in (text or "").splitlines() if line.strip()]
    left_out = len(lines) - _FAILURE_LINES
    return [f"… {left_out:,} more lines …", *lines[-_FAILURE_LINES:]] if left_out > 0 else lines


def unjudged(target: TargetResult) -> list[tuple[str, str]]:
    """Return the codes of the rules that could judge no run, and why; not those left out."""
    ran = {rule for run in target.runs for rule in run.verdict.ran}
    reasons_of: dict[str, str] = {}
    for run in target.runs:
        for item in run.verdict.skipped:
            if item.rule not in ran and not item.is_left_out:
                reasons_of.setdefault(item.rule, item.reason)
    by_reason: dict[str, list[str]] = {}
    for rule, reason in reasons_of.items():
        by_reason.setdefault(reason, []).append(rule)
    return [(code_ranges(rules), reason) for reason, rules in by_reason.items()]


def failing_levels(result: CheckResult) -> frozenset[Severity]:
    """Return the levels of findings that make the check fail; errors where nothing is a gate."""
    policy = result.policy
    if policy is None:
        return frozenset({"error"})
    levels = set(SEVERITIES[: SEVERITIES.index(policy.fail_level) + 1])
    if policy.max_warnings is not None and result.counts()["warning"] > policy.max_warnings:
        levels.add("warning")
    return frozenset(levels)


def stale_text(result: CheckResult) -> tuple[str, ...]:
    """Return that entries of the baseline match nothing, and which; nothing where none does."""
    if not result.stale:
        return ()
    count = "an entry" if len(result.stale) == 1 else f"{len(result.stale):,} entries"
    verb = "matches" if len(result.stale) == 1 else "match"
    shown = [printable(text) for text in result.stale[:_STALE_SHOWN]]
    more = len(result.stale) - _STALE_SHOWN
    return (
        f"{count} of the baseline {verb} nothing any more: --prune-baseline removes what is stale",
        *shown,
        *([f"and {more:,} more"] if more > 0 else []),
    )


def outcome_text(result: CheckResult) -> str:
    """Return how a check came out, in a word or three."""
    if result.policy is None:
        return "report"
    match exit_code(result):
        case ExitCode.CANNOT_JUDGE:
            return "could not judge"
        case ExitCode.FINDINGS:
            return "failed"
        case _:
            return "passed"


def found_text(result: CheckResult) -> str:
    """Return what counts, as `2 errors, 1 warning`, and how many findings are known."""
    counts = result.counts()
    words = [counted(counts[level], level) for level in SEVERITIES if counts[level]]
    known = sum(item.is_known for target in result.targets for item in target.findings)
    text = ", ".join(words) or "no findings"
    return f"{text} ({counted(known, 'known finding')} in the baseline)" if known else text
