"""What is reported of a run in which no gradient was seen."""

import platform
from dataclasses import replace
from pathlib import Path

from gradscope import __version__
from gradscope.cli.run import PlannedRun
from gradscope.errors import GradscopeError
from gradscope.gate.results import CheckResult, Failure, Run, TargetResult
from gradscope.recording.records import (
    Environment,
    Recording,
    Skipped,
    StepRecord,
    TargetRecord,
)
from gradscope.repository import repository_of
from gradscope.rules.engine import judge
from gradscope.rules.verdict import SkippedRule, Verdict


def unseen_result(
    planned: PlannedRun, recording: Recording | None, error: GradscopeError
) -> CheckResult:
    """Return the result of a run of which nothing was seen, with a recording that says so.

    Args:
        planned: The run.
        recording: What was recorded; None where the program was never watched.
        error: Why nothing was seen.
    """
    failure = Failure(what=error.what, help=error.help)
    recording = _told(recording or _empty(planned), failure)
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


def _told(recording: Recording, failure: Failure) -> Recording:
    """Return the recording as one of a run without gradients, which it says."""
    reason = failure.what if failure.help is None else f"{failure.what}; {failure.help}"
    nothing = StepRecord(index=0, kind="run", graph=None, loss=None, optimizer=None)
    return replace(
        recording,
        steps=recording.steps or (nothing,),
        skipped=(*recording.skipped, Skipped(what="gradients", reason=reason)),
    )


def _unjudged(verdict: Verdict, reason: str) -> Verdict:
    """Return the verdict of no rule: those that found nothing had nothing to judge."""
    left_out = [item for item in verdict.skipped if item.is_left_out]
    others = [*verdict.ran, *(item.rule for item in verdict.skipped if not item.is_left_out)]
    skipped = [*left_out, *(SkippedRule(rule=code, reason=reason) for code in others)]
    return Verdict(skipped=tuple(sorted(skipped, key=lambda item: item.rule)))


def _empty(planned: PlannedRun) -> Recording:
    folder = Path.cwd()
    return Recording(
        version=__version__,
        command=planned.command,
        environment=Environment(
            python=platform.python_version(),
            torch="not watched",
            platform=f"{platform.system()} {platform.machine()}",
            device="cpu",
            threads=1,
        ),
        target=TargetRecord(
            name=planned.program.name,
            model="",
            batch="",
            loss="",
            optimizer=None,
            mode="train",
            seed=None,
            synthetic_loss=False,
            root=str(folder),
            repository=str(repository_of(folder)),
        ),
        parameters=(),
        modules=(),
        calls=(),
        sites=(),
        nodes=(),
        edges=(),
        steps=(),
        events=(),
        parameter_stats=(),
        tensor_stats=(),
        skipped=(),
    )
