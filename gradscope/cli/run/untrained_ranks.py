"""Tells of ranks that a script started and that ended before they trained."""

from collections.abc import Sequence
from pathlib import Path

from gradscope.analysis.job import Job, RankEnding, endings
from gradscope.analysis.view import shown_site
from gradscope.cli.run.planned import PlannedRun
from gradscope.errors import GradscopeError
from gradscope.recording.records import Recording

_ORDER = {"failed": 0, "lost": 1, "consequence": 2}

_HELP = "a rank that ended by an exception comes first: what happened to the others follows from it"


def untrained_error(
    planned: PlannedRun, paths: Sequence[Path], recordings: Sequence[Recording]
) -> GradscopeError:
    """Return the error that no rank trained, with the ending of each.

    Args:
        planned: The run.
        paths: The recordings' files, which have the rank in their names: outside of a process group
            the recording does not know it.
        recordings: The recordings of the ranks.
    """
    found = [
        (_number(path), endings(Job.of((one,)))[0])
        for path, one in zip(paths, recordings, strict=True)
    ]
    found.sort(key=lambda one: (_ORDER.get(one[1].state, 3), one[1].seconds or 0.0, one[0]))
    told = "; ".join(f"rank {number}: {_text(ending)}" for number, ending in found)
    return GradscopeError(
        f"{planned.program.name} started {len(found)} ranks, and none ran a backward: {told}",
        help=_HELP,
    )


def _number(path: Path) -> int:
    text = path.name.rpartition(".rank")[2].partition(".")[0]
    return int(text) if text.isdecimal() else 0


def _text(ending: RankEnding) -> str:
    at = "" if ending.site is None else f" at {shown_site(ending.site, str(Path.cwd()))}"
    return f"{ending.what}{at}"
