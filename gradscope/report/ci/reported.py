"""What CI formats say of findings and failures: one list for all of them."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gradscope.check.results import CheckedFinding, CheckResult, Failure, TargetResult
from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.recording.finding import SEVERITIES, Severity, at_least
from gradscope.recording.records import Recording
from gradscope.report.ci.locations import Placement, placement
from gradscope.report.documents.check import seeds_text, when_text
from gradscope.report.finding_phrasing import concerned_text, consequence_text, fix_lines
from gradscope.rules.fingerprint import unique_fingerprints

_FAILURE_LINES = 40
_SEEDS_SHOWN = 5
_STALE_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFinding:
    """A finding of a check, with all that a format says of it; texts are printable."""

    target: TargetResult
    item: CheckedFinding
    placement: Placement
    identity: str
    """Identifier that is unique in the check and the same in every check; 32 hexadecimal digits."""
    statement: str
    """Problem, with the parameters concerned."""
    details: tuple[str, ...]
    """One line each: seeds that show the finding, and what it explains."""
    help: str
    is_alone: bool
    """Whether the check has no other target."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The details, and remarks on location and target."""
        target = "" if self.is_alone else printable(f"target: {self.target.name}")
        return tuple(filter(None, (self.placement.remark, target, *self.details)))

    @property
    def recording(self) -> Recording:
        """The run with the worst form of the finding."""
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
        """Location of the finding, as `file:line`."""
        return self.placement.location.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFailure:
    """Why a run could not be judged; texts are printable, but for line breaks in `details`."""

    target: TargetResult
    statement: str
    details: tuple[str, ...]
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTarget:
    """A target, with the texts of its result."""

    target: TargetResult
    findings: tuple[ReportedFinding, ...]
    """Findings in the target's order, known ones included."""
    failures: tuple[ReportedFailure, ...]

    @property
    def name(self) -> str:
        """Name as the user wrote it, printable."""
        return printable(self.target.name)


def reported(result: CheckResult) -> tuple[ReportedTarget, ...]:
    """Return each target with the texts of its result, in their order."""
    is_alone = len(result.targets) == 1
    alike = Counter[str]()
    found = []
    for target in result.targets:
        # Two recordings may have the same name.
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
    consequences, seeds = consequence_text(finding), seeds_text(item, target)
    details = (
        when_text(item, target),
        f"seeds: {seeds}" if seeds else "",
        f"worse than the baseline allows: {item.worsened}" if item.worsened else "",
        f"explains: {consequences}" if consequences else "",
        *fix_lines(finding.fix),
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
    # Names with different surrogates have different identities.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def _failures(target: TargetResult, key: str) -> Iterator[ReportedFailure]:
    """Yield why runs could not be judged, those that failed alike as one."""
    if not target.failures and not target.runs:
        yield _failure(target, Failure(what="not run"), [], key)
    alike: dict[Failure, list[int]] = {}
    for failure in target.failures:
        seeds = alike.setdefault(replace(failure, seed=None), [])
        seeds += [] if failure.seed is None else [failure.seed]
    for failure, seeds in alike.items():
        yield _failure(target, failure, seeds, key)


def _failure(
    target: TargetResult, failure: Failure, seeds: Sequence[int], key: str
) -> ReportedFailure:
    numbers = [*map(str, seeds[:_SEEDS_SHOWN]), *(["…"] if len(seeds) > _SEEDS_SHOWN else [])]
    noun = "seed" if len(seeds) == 1 else "seeds"
    where = f" ({noun} {', '.join(numbers)})" if seeds else ""
    what = " ".join(failure.what.split())
    cause = _lines(failure.cause)
    return ReportedFailure(
        target=target,
        statement=printable(f"could not check {target.name}{where}: {what}"),
        details=(
            *(f"cause: {line}" for line in cause[:1]),
            *cause[1:],
            *(f"help: {line}" for line in _lines(failure.help)),
        ),
        identity=_identity(key, "failure", failure.what, failure.cause or "", failure.help or ""),
    )


def _lines(text: str | None) -> list[str]:
    """Return the lines of a text; of a long one the last, which say most in a traceback."""
    # `printable` would spell a tab as an escape.
    lines = [printable(line.expandtabs(4)) for line in (text or "").splitlines() if line.strip()]
    left_out = len(lines) - _FAILURE_LINES
    return [f"… {left_out:,} more lines …", *lines[-_FAILURE_LINES:]] if left_out > 0 else lines


def unmatched_text(result: CheckResult) -> Iterator[str]:
    """Yield which limits hold for nothing."""
    for pattern in result.unmatched:
        yield printable(f"no module matches `{pattern}`, which has a gradient norm limit")


def failing_levels(result: CheckResult) -> frozenset[Severity]:
    """Return the levels of findings that make the check fail; errors if there is no check."""
    policy = result.policy
    if policy is None:
        return frozenset({"error"})
    levels = set(at_least(policy.fail_level))
    if policy.max_warnings is not None and result.counts()["warning"] > policy.max_warnings:
        levels.add("warning")
    return frozenset(levels)


def stale_text(result: CheckResult) -> tuple[str, ...]:
    """Return which entries of the baseline match nothing; nothing if all match."""
    if not result.stale:
        return ()
    count = "an entry" if len(result.stale) == 1 else f"{len(result.stale):,} entries"
    verb = "matches" if len(result.stale) == 1 else "match"
    shown = [printable(text) for text in result.stale[:_STALE_SHOWN]]
    more = len(result.stale) - _STALE_SHOWN
    return (
        f"{count} of the baseline no longer {verb}: use --prune-baseline to remove stale entries",
        *shown,
        *([f"and {more:,} more"] if more > 0 else []),
    )
