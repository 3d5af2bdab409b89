"""A distributed job: the recordings of its ranks side by side, and which rank failed first."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Literal

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import (
    Moment,
    ParameterPlacement,
    RankEvent,
    RankIdentity,
    RankNumbers,
    RankPass,
    WrappedModel,
)
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.records import EventRecord, Recording, Site

_FIRST_PASSES = 24
"""Number of first backward passes whose rows and tokens are compared."""


def identity_of(recording: Recording) -> RankIdentity | None:
    """Return the rank of a recording, None for a process that was in no process group."""
    return next(iter(recording.evidence_of(RankIdentity)), None)


@dataclass(frozen=True)
class Rank:
    """A rank of a job, and its recording."""

    recording: Recording

    @cached_property
    def identity(self) -> RankIdentity | None:
        """Identity of the rank in its job."""
        return identity_of(self.recording)

    @cached_property
    def number(self) -> int:
        """Its number, 0 outside of a process group."""
        return 0 if self.identity is None else self.identity.rank

    @cached_property
    def index(self) -> RecordingIndex:
        """The recording with its indexes."""
        return RecordingIndex(self.recording)

    @cached_property
    def ending(self) -> RunEnding | None:
        """How it ended; None if it was killed or still runs."""
        return next(iter(self.recording.evidence_of(RunEnding)), None)

    @cached_property
    def passes(self) -> tuple[RankPass, ...]:
        """Its first backward passes."""
        return self.recording.evidence_of(RankPass)

    @cached_property
    def wrapped(self) -> tuple[WrappedModel, ...]:
        """Models that the rank wrapped."""
        return self.recording.evidence_of(WrappedModel)

    @cached_property
    def events(self) -> Mapping[str, tuple[RankEvent, ...]]:
        """Events of the rank, by kind."""
        found: dict[str, list[RankEvent]] = {}
        for event in self.recording.evidence_of(RankEvent):
            found.setdefault(event.kind, []).append(event)
        return {kind: tuple(events) for kind, events in found.items()}

    @cached_property
    def numbers(self) -> Mapping[tuple[Moment, int], tuple[float | None, ...]]:
        """Compared numbers by moment and step."""
        records = self.recording.evidence_of(RankNumbers)
        return {(record.moment, record.step): record.values for record in records}

    @cached_property
    def placements(self) -> Mapping[str, ParameterPlacement]:
        """Placements by the name of the parameter."""
        parameters = self.recording.parameters
        return {
            parameters[one.parameter].name: one
            for one in self.recording.evidence_of(ParameterPlacement)
            if one.parameter < len(parameters)
        }

    @cached_property
    def backwards(self) -> tuple[EventRecord, ...]:
        """Its first backward passes as events of the run, with their measured numbers."""
        events = (event for event in self.recording.events if event.kind == "backward")
        return tuple(islice(events, _FIRST_PASSES))

    @cached_property
    def backward_count(self) -> int:
        """Number of backward passes that it began."""
        # A bounded recording drops old events: the rank's own count at its end is complete.
        known = [dict(event.numbers).get("passes") for event in self.events.get("end", ())]
        if known and known[-1] is not None:
            return int(known[-1])
        kinds = ("backward", "backward-error")
        return sum(event.kind in kinds for event in self.recording.events)

    @cached_property
    def step_count(self) -> int:
        """Number of its optimizer steps."""
        return KeptSteps(self.recording).total

    def squares(self, moment: Moment, step: int) -> dict[str, float]:
        """Return the sums of squares that are known, by name of the parameter."""
        values = self.numbers.get((moment, step), ())
        # Parameters that were made later have no number in an earlier row.
        parameters = self.recording.parameters
        pairs = zip(parameters, values, strict=False)
        return {parameter.name: value for parameter, value in pairs if value is not None}

    @cached_property
    def trained_names(self) -> frozenset[str]:
        """Names of the parameters that have a gradient in a measured step."""
        rows = [row for (moment, _), row in self.numbers.items() if moment in ("backward", "step")]
        known = {at for row in rows for at, value in enumerate(row) if value is not None}
        names = enumerate(parameter.name for parameter in self.recording.parameters)
        return frozenset(name for at, name in names if at in known)

    def scaling(self, step: int, names: Collection[str] | None = None) -> float | None:
        """Return the factor on its gradients between backward and step; None if unknown.

        Args:
            step: The step.
            names: Parameters to look at; None for all.
        """
        before, after = self.squares("backward", step), self.squares("step", step)
        both = [name for name in before if name in after and (names is None or name in names)]
        whole = math.fsum(before[name] for name in both)
        if not 0 < whole < math.inf:
            return None
        return math.sqrt(math.fsum(after[name] for name in both) / whole)

    def steps(self, moment: Moment) -> list[int]:
        """Return the steps at which numbers of a moment are known."""
        return sorted(step for kind, step in self.numbers if kind == moment)

    def site(self, index: int | None) -> Site | None:
        """Return a line of the recording."""
        return self.index.site(index)

    def lines(self, kind: str) -> list[Site]:
        """Return the lines at which events of a kind happened."""
        found = (self.site(event.site) for event in self.events.get(kind, ()))
        return [site for site in found if site is not None]


@dataclass(frozen=True)
class Job:
    """The ranks of a job that were recorded, by number."""

    ranks: tuple[Rank, ...]

    @classmethod
    def of(cls, recordings: Iterable[Recording]) -> "Job":
        """Return the job of some recordings."""
        ranks = sorted((Rank(one) for one in recordings), key=lambda rank: rank.number)
        return cls(tuple(ranks))

    @property
    def first(self) -> Rank:
        """The rank with the lowest number."""
        return self.ranks[0]

    @cached_property
    def world_size(self) -> int:
        """Number of ranks of the job, recorded or not."""
        sizes = (rank.identity.world_size for rank in self.ranks if rank.identity is not None)
        return max(sizes, default=1)

    @property
    def is_joined(self) -> bool:
        """Whether several ranks were recorded."""
        return len(self.ranks) > 1

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """Ranks without a recording."""
        known = {rank.number for rank in self.ranks}
        return tuple(number for number in range(self.world_size) if number not in known)

    @cached_property
    def strategy(self) -> str:
        """How the model is spread, as `DDP` or `FSDP2`; empty if nothing is known."""
        kinds = dict.fromkeys(one.kind for rank in self.ranks for one in rank.wrapped)
        if self.is_tensor_parallel:
            kinds["TP"] = None
        if kinds:
            return " + ".join(kinds)
        return "gradients reduced by the script" if self.is_by_hand else ""

    @cached_property
    def is_tensor_parallel(self) -> bool:
        """Whether ranks hold parts of layers and work on the same batch."""
        return any(
            one.mesh and _is_tensor_parallel(rank, one)
            for rank in self.ranks
            for one in rank.placements.values()
        )

    @cached_property
    def is_by_hand(self) -> bool:
        """Whether the script reduces gradients itself."""
        kinds = ("gradient-reduced", "flat-reduced")
        return any(rank.events.get(kind) for rank in self.ranks for kind in kinds)

    @cached_property
    def is_pipelined(self) -> bool:
        """Whether ranks send tensors to each other, as stages of a pipeline do."""
        return any(rank.events.get("point-to-point") for rank in self.ranks)

    @cached_property
    def averages_weights(self) -> bool:
        """Whether the script averages weights instead of gradients."""
        is_local = any("localSGD" in event.subject for _, event in self.events("hook"))
        return is_local or any(rank.events.get("weight-reduced") for rank in self.ranks)

    @cached_property
    def is_data_parallel(self) -> bool:
        """Whether each rank trains the same model on a batch of its own."""
        kinds = {one.kind for rank in self.ranks for one in rank.wrapped}
        is_by_hand = self.is_by_hand and not self.is_pipelined
        return bool(kinds or is_by_hand) and not self.is_tensor_parallel

    @cached_property
    def shared_names(self) -> tuple[str, ...]:
        """Names of the parameters that every recorded rank has with the same whole shape."""
        first, *others = (rank.placements for rank in self.ranks)
        return tuple(
            name
            for name, one in first.items()
            if all(name in other and other[name].shape == one.shape for other in others)
        )

    @cached_property
    def trained_names(self) -> frozenset[str]:
        """Names of the parameters that have a gradient in a measured step of some rank."""
        return frozenset(name for rank in self.ranks for name in rank.trained_names)

    def events(self, kind: str) -> Iterator[tuple[Rank, RankEvent]]:
        """Yield the events of a kind, by rank."""
        for rank in self.ranks:
            for event in rank.events.get(kind, ()):
                yield rank, event

    def common_steps(self, moment: Moment) -> list[int]:
        """Return the steps at which every rank knows the numbers of a moment."""
        first, *others = (set(rank.steps(moment)) for rank in self.ranks)
        return sorted(first.intersection(*others))


def _is_tensor_parallel(rank: Rank, placement: ParameterPlacement) -> bool:
    if "FSDP2" not in {one.kind for one in rank.wrapped}:
        return placement.kind == "sharded"
    # FSDP shards one dimension of the mesh, tensor parallelism another one.
    names = {name for name, _ in placement.mesh}
    shards = sum(text.startswith(("Shard", "_Strided")) for text in placement.placements)
    return "tp" in names or shards > 1


RankState = Literal["finished", "failed", "consequence", "lost"]
"""`failed`: raised an exception of its own. `consequence`: ended because another rank had failed or
did not answer. `lost`: has no ending, was killed or still waits.
"""

_COMMUNICATION = re.compile(
    r"connection (closed|reset|refused)|broken pipe|gloo/|\bnccl|tcpstore|recvvalue"
    r"|timed? ?out (waiting|after) |watchdog|application timeout",
    re.IGNORECASE,
)

_COMMUNICATION_KINDS = re.compile(r"Dist(Backend|Network|Store)?Error$|BrokenPipe|ConnectionReset")

_UNREDUCED = "Expected to have finished reduction in the prior iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnding:
    """How a rank ended."""

    rank: int
    state: RankState
    what: str
    """Description of what happened."""
    site: Site | None
    """Line of the exception, or of the last event."""
    seconds: float | None
    """Wall clock of the last event, in seconds since 1970."""


def is_communication(exception: str, message: str) -> bool:
    """Return whether an exception says that another rank did not answer."""
    if _UNREDUCED in message:
        return False
    return bool(_COMMUNICATION_KINDS.search(exception) or _COMMUNICATION.search(message))


def endings(job: Job) -> tuple[RankEnding, ...]:
    """Return how each recorded rank ended."""
    return tuple(map(_ending, job.ranks))


def first_failure(job: Job) -> RankEnding | None:
    """Return the rank that failed first, None if none did.

    An exception of its own comes before a rank that was lost, and this before an error in the
    communication with others. Of several, the earliest counts.
    """
    order = {"failed": 0, "lost": 1, "consequence": 2}
    found = [one for one in endings(job) if one.state in order]
    return min(found, key=lambda one: (order[one.state], one.seconds or 0.0), default=None)


def _ending(rank: Rank) -> RankEnding:
    ending, last = rank.ending, _last_event(rank)
    seconds = None if rank.identity is None else rank.identity.clock + _last_seconds(rank)
    if ending is None or ending.kind == "lost":
        is_complete = rank.recording.finished
        state: RankState = "finished" if is_complete else "lost"
        text = "finished" if is_complete else "no ending: it was killed or is still running"
        waits = _last_collective(rank)
        site = _last_site(rank) if waits is None else rank.site(waits.site)
        if state == "lost" and waits is not None:
            text = f"{text}; last event: {waits.subject}() begins"
        elif state == "lost" and last is not None:
            text = f"{text}; last event: {last}"
        return RankEnding(rank=rank.number, state=state, what=text, site=site, seconds=seconds)
    if ending.kind == "raised":
        is_other = is_communication(ending.exception, ending.message)
        site = Site(file=ending.file, line=ending.line or 0, function="", source="")
        return RankEnding(
            rank=rank.number,
            state="consequence" if is_other else "failed",
            what=f"{ending.exception}: {ending.message}",
            site=site if ending.file else None,
            seconds=seconds,
        )
    if ending.kind == "exited" and ending.code:
        text = f"sys.exit({ending.code})"
        return RankEnding(rank=rank.number, state="failed", what=text, site=None, seconds=seconds)
    return RankEnding(
        rank=rank.number, state="finished", what="finished", site=None, seconds=seconds
    )


def _last_event(rank: Rank) -> str | None:
    events = rank.recording.events
    return events[-1].kind if events else None


def _last_collective(rank: Rank) -> RankEvent | None:
    """Return the collective that a rank began at a new line after its last step."""
    found = rank.events.get("collective", ())
    return found[-1] if found and found[-1].step >= rank.step_count else None


def _last_seconds(rank: Rank) -> float:
    return max((event.seconds for event in rank.recording.events[-64:]), default=0.0)


def _last_site(rank: Rank) -> Site | None:
    sites = (event.site for event in reversed(rank.recording.events[-16:]))
    return rank.site(next((site for site in sites if site is not None), None))


Kind = tuple[object, ...]


def kind_of(recording: Recording) -> Kind:
    """Return the properties that a rank shares with others of its kind.

    These are its ending, its numbers of steps and passes, the kinds and lines of its events,
    whether its losses and norms stay finite, and which numbers it lacks.
    """
    rank = Rank(recording)
    ending = rank.ending
    losses = [step.loss for step in recording.steps if step.loss is not None]
    return (
        None if ending is None else (ending.kind, ending.exception, ending.file, ending.line),
        rank.step_count,
        rank.backward_count,
        frozenset((event.kind, rank.site(event.site)) for event in recording.events),
        frozenset((kind, event.site) for kind, found in rank.events.items() for event in found),
        all(map(math.isfinite, losses)),
        all(math.isfinite(v) for values in rank.numbers.values() for v in values if v is not None),
        frozenset(record.reason for record in recording.skipped),
        tuple(parameter.name for parameter in recording.parameters),
    )
