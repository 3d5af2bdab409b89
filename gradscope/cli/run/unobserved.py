"""The result of a run of which no gradient was observed, and the error of ranks without any."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradscope.analysis.ranks.job import Job, RankEnding, endings
from gradscope.analysis.view import shown_site
from gradscope.check.results import CheckResult, Failure, Run, TargetResult
from gradscope.cli.run.planned import PlannedRun
from gradscope.errors import GradscopeError
from gradscope.recording.finding import SkippedRule, Verdict
from gradscope.recording.meta import run_header
from gradscope.recording.records import Recording, Skipped, StepRecord
from gradscope.recording.tables import recording_of
from gradscope.rules.engine import judge
from gradscope.version import __version__


def unobserved_result(
    planned: PlannedRun, recording: Recording | None, error: GradscopeError
) -> CheckResult:
    """Return the result of a run without gradients, with a recording that says so.

    Args:
        planned: The run.
        recording: The recording; None if the program was never recorded.
        error: Reason why no gradient was observed.
    """
    failure = Failure(what=error.what, help=error.help)
    recording = _printed(recording or _empty(planned), failure)
    verdict = _unjudged(judge(recording, planned.settings), failure.what)
    return CheckResult(
        version=__version__,
        command=planned.command,
        targets=(
            TargetResult(
                name=planned.program.name,
                runs=(Run(recording=recording, verdict=verdict),),
                failures=(failure,),
            ),
        ),
        policy=planned.policy,
    )


def _printed(recording: Recording, failure: Failure) -> Recording:
    """Return the recording with the reason why it has no gradients."""
    reason = failure.what if failure.help is None else f"{failure.what}; {failure.help}"
    # By a step of a run, reports tell that the recording is of one.
    nothing = StepRecord(index=0, kind="run", graph=None, loss=None, optimizer=None)
    return replace(
        recording,
        steps=recording.steps or (nothing,),
        skipped=(*recording.skipped, Skipped(what="gradients", reason=reason)),
    )


def _unjudged(verdict: Verdict, reason: str) -> Verdict:
    """Return the verdict with every rule skipped: none had a gradient to judge."""
    left_out = [item for item in verdict.skipped if item.is_left_out]
    others = [*verdict.ran, *(item.rule for item in verdict.skipped if not item.is_left_out)]
    skipped = [*left_out, *(SkippedRule(rule=code, reason=reason) for code in others)]
    return Verdict(skipped=tuple(sorted(skipped, key=lambda item: item.rule)))


def _empty(planned: PlannedRun) -> Recording:
    name = planned.program.name
    header = run_header(planned.command, name, torch="not watched", threads=1)
    return recording_of(header, lambda _: (), stats=())


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
