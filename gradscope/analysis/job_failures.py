"""How the ranks of a job ended, and which of them failed first."""

import re
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.job import Job, Rank
from gradscope.recording.records import Site

RankState = Literal["finished", "failed", "consequence", "lost"]
"""`failed`: by an exception of its own. `consequence`: because another rank was gone or did not
answer. `lost`: without an ending, killed or still waiting."""

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
    """What happened, in words."""
    site: Site | None
    """Line of the exception, or of its last event."""
    seconds: float | None
    """Wall clock of its last event, in seconds since 1970."""


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
        words = "finished" if is_complete else "no ending: it was killed or is still running"
        if state == "lost" and last is not None:
            words = f"{words}; last event: {last}"
        return RankEnding(
            rank=rank.number, state=state, what=words, site=_last_site(rank), seconds=seconds
        )
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
        words = f"sys.exit({ending.code})"
        return RankEnding(rank=rank.number, state="failed", what=words, site=None, seconds=seconds)
    return RankEnding(
        rank=rank.number, state="finished", what="finished", site=None, seconds=seconds
    )


def _last_event(rank: Rank) -> str | None:
    events = rank.recording.events
    return events[-1].kind if events else None


def _last_seconds(rank: Rank) -> float:
    return max((event.seconds for event in rank.recording.events[-64:]), default=0.0)


def _last_site(rank: Rank) -> Site | None:
    sites = (event.site for event in reversed(rank.recording.events[-16:]))
    return rank.site(next((site for site in sites if site is not None), None))
