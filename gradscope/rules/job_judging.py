"""Judges a distributed job: each rank by itself, and all of them together."""

from collections.abc import Sequence
from dataclasses import replace

from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.ranks.job import identity_of
from gradscope.recording.finding import Finding, SkippedRule, Verdict, rank_of
from gradscope.recording.records import Recording
from gradscope.rules.catalogue import RULES
from gradscope.rules.context import RuleContext
from gradscope.rules.engine import Judge, check_settings, with_consequences
from gradscope.rules.fingerprint import by_cause
from gradscope.rules.rule import family_of
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings


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
