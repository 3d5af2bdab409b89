"""Judges a recording by the rules: the worst first, and consequences with their cause."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.ranks.job import identity_of
from gradscope.errors import GradscopeError
from gradscope.recording.finding import (
    NOT_SELECTED,
    SEVERITIES,
    Consequence,
    Finding,
    SkippedRule,
    Verdict,
    rank_of,
)
from gradscope.recording.records import Recording
from gradscope.rules.captured_steps.judging import CapturedSteps
from gradscope.rules.catalogue import RULES
from gradscope.rules.context import RuleContext
from gradscope.rules.finding_origins import StepBatches, at_users_lines
from gradscope.rules.fingerprint import by_cause
from gradscope.rules.rule import Rule, family_of
from gradscope.rules.selection import is_named, reason_left_out, rules_named, suggestion
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings, matches
from gradscope.rules.story import in_one_story

_DEPENDENT = ("GS1", "GS203", "GS204", "GS211", "GS4", "GS6", "GS7")
"""Beginnings of the codes of rules whose findings depend on the values of batch and loss."""

_NO_RUN = "the recording is no training run"


@dataclass(frozen=True)
class Judge:
    """Runs rules over one recording, or over the recordings of a job's ranks.

    The settings have been checked.
    """

    context: RuleContext
    settings: Settings

    @cached_property
    def captured_steps(self) -> CapturedSteps:
        """The captured steps of a run, for the rules that judge single backward passes."""
        return CapturedSteps(self.context)

    def rule(self, kind: type[Rule]) -> Rule:
        """Return a rule with the thresholds of the settings."""
        return kind(**self.settings.thresholds.get(kind.name, {}))

    def is_mentioned(self, rule: Rule) -> bool:
        """Return whether a rule is for recordings of this kind, or was asked for."""
        if rule.is_asked_for(self.context) is False:
            return False
        return rule.is_for(self.context) or is_named(type(rule), self.settings)

    def skip_reason(self, rule: Rule) -> str | None:
        """Return why a rule does not judge the recording; None if it does."""
        if reason := _reason_left_out(rule, self.context, self.settings):
            return reason
        if self.judges_captured_steps(rule):
            return self.captured_steps.skip_reason(rule)
        return rule.skip_reason(self.context)

    def findings(self, rule: Rule) -> Iterator[Finding]:
        """Yield the findings of a rule that can judge."""
        if self.judges_captured_steps(rule):
            return self.captured_steps.check(rule)
        return iter(rule.check(self.context))

    def _with_guesses(self, finding: Finding) -> Finding:
        """Return a finding that says which guessed parts of the target its numbers depend on."""
        guesses = self.context.recording.target.guesses
        if not guesses or not finding.rule.startswith(_DEPENDENT):
            return finding
        evidence = (*finding.evidence, ("depends_on_guessed", " and ".join(guesses)))
        return dataclasses.replace(finding, evidence=evidence)

    @cached_property
    def _batches(self) -> StepBatches:
        return StepBatches(self.context.recording)

    def judges_captured_steps(self, rule: Rule) -> bool:
        """Return whether a rule judges single backward passes of a run.

        Limits of the user's own hold in every step, and not only in those that were captured.
        """
        return self.context.is_run and not rule.needs_run and not rule.is_asked_for(self.context)

    def verdict(self, kinds: Iterable[type[Rule]]) -> Verdict:
        """Run some rules, and group findings with the same cause."""
        findings: list[Finding] = []
        ran: list[str] = []
        skipped: list[SkippedRule] = []
        for rule in filter(self.is_mentioned, map(self.rule, kinds)):
            reason = self.skip_reason(rule)
            if reason is None:
                ran.append(rule.code)
                findings += map(self._batches.named, map(self._with_guesses, self.findings(rule)))
            else:
                skipped.append(SkippedRule(rule=rule.code, reason=reason))
        # Ignored findings leave before the grouping: as a cause, one would hide its consequences
        # with it.
        counted = [finding for finding in findings if not _is_ignored(finding, self.settings)]
        grouped = with_consequences(counted, in_order=self.context.is_run)
        stories = in_one_story(self.context, grouped)
        arguments = {one.code: one.argument for one in RULES}
        # The lines change last, since grouping compares the lines where the mistakes are.
        located = at_users_lines(stories, self.context, arguments)
        return Verdict(
            findings=tuple(sorted(located, key=rank_of)),
            ran=tuple(ran),
            skipped=tuple(skipped),
            ignored=len(findings) - len(counted),
        )


def judge(recording: Recording, settings: Settings = DEFAULT_SETTINGS) -> Verdict:
    """Run the rules over a recording.

    Raises:
        GradscopeError: The settings name a rule or a threshold that does not exist.
    """
    check_settings(settings)
    return Judge(RuleContext(recording, norm_limits=settings.norm_limits), settings).verdict(RULES)


def _reason_left_out(rule: Rule, context: RuleContext, settings: Settings) -> str | None:
    """Return why a rule does not run, None if it does."""
    reason = reason_left_out(type(rule), settings)
    if reason == NOT_SELECTED and rule.is_asked_for(context):
        reason = None
    return reason or (None if rule.is_for(context) else _NO_RUN)


def check_settings(settings: Settings) -> None:
    """Make sure that every rule and threshold that the settings name exists.

    Raises:
        GradscopeError: One does not.
    """
    patterns = settings.per_module_ignores.values()
    selectors = (*settings.select, *settings.ignore, *settings.extend_select)
    for selector in (*selectors, *(one for codes in patterns for one in codes)):
        # It raises for a selector that names no rule; the result is not needed.
        rules_named(selector)
    by_name = {rule.name: rule for rule in RULES}
    for name, thresholds in settings.thresholds.items():
        if name not in by_name:
            raise GradscopeError(
                f"no rule is named `{name}`{suggestion(name, by_name)}",
                help="gradscope rule lists them",
            )
        fields = [field.name for field in dataclasses.fields(by_name[name])]
        for threshold in thresholds:
            if threshold not in fields:
                known = ", ".join(fields) or "none"
                raise GradscopeError(f"rule {name} has no threshold `{threshold}`: it has {known}")


def with_consequences(findings: Iterable[Finding], *, in_order: bool = False) -> list[Finding]:
    """Return the root causes, each with the findings that it explains.

    Args:
        findings: All that was found.
        in_order: Whether nothing explains what begins at an earlier step, as in a run.
    """
    remaining = list(findings)
    causes: dict[int, Finding] = {}
    for finding in remaining:
        for other in remaining:
            # Findings that explain each other in a ring would all become consequences, and none
            # would be left.
            leads_back = any(one is finding for one in _chain(other, causes))
            later = (other.step or 0) - (finding.step or 0) if in_order else 0
            if leads_back or later > 0 or not _overlap(other, finding):
                continue
            # Where two rules explain each other, the order of steps decides. Within one step
            # neither does, unless a finding itself says so.
            if _explains(other, finding) or (later < 0 and _may_explain(other, finding)):
                causes[id(finding)] = other
                break
    explained: dict[int, list[Finding]] = {}
    for finding in remaining:
        if id(finding) in causes:
            explained.setdefault(id(causes[id(finding)]), []).append(finding)
    return [_attach(one, explained) for one in remaining if id(one) not in causes]


def _chain(finding: Finding, causes: Mapping[int, Finding]) -> Iterator[Finding]:
    """Yield a finding, its cause, the cause of that, and so on."""
    one: Finding | None = finding
    while one is not None:
        yield one
        one = causes.get(id(one))


def _explains(cause: Finding, finding: Finding) -> bool:
    """Return whether a finding's kind explains the other; its own declaration comes first."""
    if finding.rule == cause.rule:
        return False  # of one step; an earlier one may explain a later one
    if finding.rule in cause.explains or cause.rule in finding.explains:
        # What a single finding declares is more specific than what its rule declares for all of
        # them.
        return finding.rule in cause.explains
    if cause.rule in finding.caused_by or finding.rule in cause.caused_by:
        return cause.rule in finding.caused_by
    explains = {rule.code: rule.explains for rule in RULES}
    return finding.rule.startswith(explains.get(cause.rule, ())) and not (
        cause.rule.startswith(explains.get(finding.rule, ()))
    )


def _may_explain(cause: Finding, finding: Finding) -> bool:
    """Return whether a finding explains the other, which does not explain it."""
    explains = {rule.code: rule.explains for rule in RULES}.get(cause.rule, ())
    return finding.rule.startswith((*cause.explains, *explains))


def _attach(root: Finding, explained: dict[int, list[Finding]]) -> Finding:
    found, waiting = list[Finding](), list(explained.get(id(root), ()))
    while waiting:  # a consequence may have consequences of its own
        one = waiting.pop(0)
        found.append(one)
        waiting += explained.get(id(one), ())
    if not found:
        return root
    # A cause that is only a note by itself is as bad as what it leads to.
    worst = min((root, *found), key=lambda finding: SEVERITIES.index(finding.severity)).severity
    return dataclasses.replace(
        root,
        severity=worst,
        parameters=tuple(
            dict.fromkeys([*root.parameters, *(n for f in found for n in f.parameters)])
        ),
        consequences=tuple(
            Consequence(rule=one.rule, name=one.name, message=one.message) for one in found
        ),
    )


def _overlap(cause: Finding, finding: Finding) -> bool:
    """Return whether a cause may explain a finding: one without parameters concerns them all."""
    if not cause.parameters or not finding.parameters:
        return True
    shared = set(cause.parameters) & set(finding.parameters)
    if cause.rule in finding.caused_by:
        # A finding that names its cause needs less of an overlap than one that any cause of a kind
        # explains.
        return _share_a_line(cause, finding) or bool(shared)
    # A cause of a few parameters does not hide a finding that is mostly about others.
    return 2 * len(shared) >= len(finding.parameters)


def _share_a_line(cause: Finding, finding: Finding) -> bool:
    """Return whether two findings have a line in common, such as that of an optimizer."""
    return not _lines(cause).isdisjoint(_lines(finding))


def _lines(finding: Finding) -> set[tuple[str, int]]:
    positions = (finding.location, *finding.related)
    return {(one.file, one.line) for one in positions if one is not None}


def _is_ignored(finding: Finding, settings: Settings) -> bool:
    """Return whether all subjects of a finding are in modules for which its rule is ignored."""
    patterns = [
        pattern
        for pattern, selectors in settings.per_module_ignores.items()
        if any(finding.rule == rule.code for s in selectors for rule in rules_named(s))
    ]
    positions = finding.modules or finding.parameters
    # A finding without subjects concerns the whole model, which no pattern of modules names.
    return bool(positions) and all(
        any(matches(position, pattern) for pattern in patterns) for position in positions
    )


def judge_job(recordings: Sequence[Recording], settings: Settings = DEFAULT_SETTINGS) -> Verdict:
    """Run the rules over the recordings of a job: what several ranks show is one finding.

    Args:
        recordings: The recordings, by rank. A single one is judged by itself. Outlines are judged
            only with the others, by the rules about ranks.
        settings: Which rules judge, and how.

    Raises:
        GradscopeError: The settings name a rule or a threshold that does not exist.
    """
    check_settings(settings)
    # A rule on ranks must see all of them at once; every other one judges a rank as a run of its
    # own.
    own = tuple(kind for kind in RULES if family_of(kind.code) != "ranks")
    joint = tuple(kind for kind in RULES if family_of(kind.code) == "ranks")
    alone = [
        Judge(RuleContext(one, norm_limits=settings.norm_limits), settings).verdict(own)
        for one in recordings
        if not one.is_outline
    ]
    whole = RuleContext(recordings[0], norm_limits=settings.norm_limits, ranks=tuple(recordings))
    together = Judge(whole, settings).verdict(joint)
    numbers = [_number(one, at) for at, one in enumerate(recordings) if not one.is_outline]
    findings = [*_merged([one.findings for one in alone], numbers), *together.findings]
    verdicts = (*alone, together)
    ran = tuple(dict.fromkeys(code for one in verdicts for code in one.ran))
    skipped: dict[str, SkippedRule] = {}
    for verdict in verdicts:
        for item in verdict.skipped:
            # A rule that one rank could judge is not skipped for the job.
            if item.rule not in ran:
                skipped.setdefault(item.rule, item)
    return Verdict(
        # A finding between ranks may explain what each rank shows, so all are grouped again.
        findings=tuple(sorted(with_consequences(findings, in_order=True), key=rank_of)),
        ran=ran,
        skipped=tuple(skipped.values()),
        # Ranks mostly ignore the same findings, and a sum would count each once per rank.
        ignored=max(one.ignored for one in verdicts),
    )


def _number(recording: Recording, position: int) -> int:
    identity = identity_of(recording)
    return position if identity is None else identity.rank


def _merged(findings: Sequence[Sequence[Finding]], numbers: Sequence[int]) -> list[Finding]:
    """Return findings of several ranks, equal causes as one with the ranks that show it."""
    found = []
    for group in by_cause(findings):
        worst = min((finding for _, finding in group), key=rank_of)
        ranks = tuple(numbers[position] for position, _ in group)
        message = f"{worst.message} ({_rank_text(ranks, len(numbers))})"
        found.append(replace(worst, message=message, ranks=ranks))
    return found


def _rank_text(ranks: Sequence[int], count: int) -> str:
    """Return which ranks show a finding."""
    if len(ranks) == count:
        return f"all {count} ranks"
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {joined_numbers(ranks)}"
