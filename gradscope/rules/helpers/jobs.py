"""Common parts of the rules about ranks: the job of a context, its lines, and texts on ranks."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import RankEvent
from gradscope.recording.records import NodeRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

SINGLE = "the recordings of other ranks are needed"
"""Reason why a rule cannot judge one rank alone."""


def job_of(context: RuleContext) -> Job:
    """Return the judged job: all its ranks, or that of a single recording."""
    return Job.of(context.ranks or (context.recording,))


def has_other_ranks(context: RuleContext) -> str | None:
    """Return why ranks cannot be compared."""
    return None if context.shared(job_of).is_joined else SINGLE


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule(Rule):
    """A rule on the processes of a process group."""

    needs_run: ClassVar[bool] = True

    def is_for(self, context: RuleContext) -> bool:
        """Return whether the process was in a process group."""
        return context.is_run and context.shared(job_of).first.identity is not None


@dataclass(frozen=True, slots=True)
class JoinedEvent:
    """Equal events of one or more ranks at one line."""

    event: RankEvent
    """Event of the first rank."""
    rank: Rank
    ranks: tuple[int, ...]
    count: int
    """Largest count of any rank."""

    @property
    def site(self) -> Site | None:
        """The line."""
        return self.rank.site(self.event.site)

    @property
    def related(self) -> list[Site]:
        """Other lines that take part."""
        found = (self.rank.site(site) for site in self.event.related)
        return [site for site in found if site is not None]

    def number(self, name: str) -> float | None:
        """Return a number of the event."""
        return dict(self.event.numbers).get(name)


def joined_events(job: Job, kind: str) -> Iterator[JoinedEvent]:
    """Yield the events of a kind, with those of several ranks at one line joined."""
    found: dict[tuple[str, int, str], list[tuple[Rank, RankEvent]]] = {}
    for rank, event in job.events(kind):
        site = rank.site(event.site)
        # Without a line, events about one subject belong together.
        key = ("", 0, event.subject) if site is None else (site.file, site.line, event.subject)
        found.setdefault(key, []).append((rank, event))
    for ones in found.values():
        rank, event = ones[0]
        numbers = tuple(dict.fromkeys(one.number for one, _ in ones))
        yield JoinedEvent(event, rank, numbers, max(one.count for _, one in ones))


def on_ranks(numbers: Sequence[int], job: Job) -> str:
    """Return `on rank 1` or `on all 2 ranks`; empty for a job of one rank."""
    if job.world_size == 1:
        return ""
    if len(numbers) == job.world_size:
        return f" on all {job.world_size} ranks"
    return f" on rank {numbers[0]}" if len(numbers) == 1 else f" on ranks {joined_numbers(numbers)}"


def loss_node(rank: Rank) -> tuple[NodeRecord, Site] | None:
    """Return the operation that made a loss, and its line, from a captured step."""
    for captured in rank.recording.captured_steps:
        for node in captured.recording.nodes:
            if node.depth == 0 and node.site is not None:
                return node, captured.recording.sites[node.site]
    return None


def loss_site(rank: Rank) -> Site | None:
    """Return the line that made the loss, as far as a captured step shows it."""
    found = loss_node(rank)
    return None if found is None else found[1]


def forward_site(rank: Rank) -> Site | None:
    """Return the line of the first forward of a model."""
    sites = (one.forward for one in rank.passes if one.forward is not None)
    return rank.site(next(sites, None))


def backward_site(rank: Rank) -> Site | None:
    """Return the line of the first backward."""
    sites = (one.backward for one in rank.passes if one.backward is not None)
    return rank.site(next(sites, None))


def step_site(rank: Rank, step: int = 0) -> Site | None:
    """Return the line of the first step, or of the first from a number on."""
    steps = (e for e in rank.recording.events if e.kind == "step" and e.step >= step)
    return rank.site(next((e.site for e in steps if e.site is not None), None))
