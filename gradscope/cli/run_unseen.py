"""What is reported of a run in which no gradient was seen."""

import platform
from dataclasses import dataclass, replace
from pathlib import Path

from gradscope import __version__
from gradscope.cli.run import PlannedRun
from gradscope.gate.results import CheckResult, Failure, Run, TargetResult
from gradscope.launch.children import TELLING_SECONDS
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Why nothing was seen of gradients."""

    why: str
    """As what the program did: `never called backward`."""
    seconds_of_children: float
    """CPU time of the processes that it has started."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether processes that it started may have trained in its place."""
        return self.seconds_of_children >= TELLING_SECONDS

    def failure(self, name: str) -> Failure:
        """Return what a gate says of it.

        Args:
            name: Of the program.
        """
        if not self.is_elsewhere:
            return Failure(
                what=f"{name} {self.why}: there is nothing to report",
                help="processes that it starts are not watched: start each with gradscope run,"
                " as torchrun -m gradscope run does",
            )
        return Failure(
            what=(
                f"{name} {self.why}, and the processes that it started, which computed for "
                f"{self.seconds_of_children:.3g} s, are not watched: there is nothing to report"
            ),
            help="watch each process: call gradscope.watch() in the function that it runs, or"
            " start it with gradscope run, as torchrun -m gradscope run does",
        )


def unseen_result(
    planned: PlannedRun, recording: Recording | None, failure: Failure
) -> CheckResult:
    """Return the result of a run of which nothing was seen, with a recording that says so.

    Args:
        planned: The run.
        recording: What was recorded; None where the program was never watched.
        failure: Why nothing was seen.
    """
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
