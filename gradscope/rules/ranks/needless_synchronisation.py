"""GS810: backward passes that are reduced although no step follows them."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.jobs import JobRule, job_of, joined_events


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedlessSynchronisation(JobRule):
    """Micro-batches are reduced one by one before a step.

    What it finds:
        Gradient accumulation without `no_sync`, or with `no_sync` around backward alone, which has
        no effect: DDP decides in its forward.

    Why it matters:
        The gradients are the same, but every micro-batch sends all of them. Accumulation of k
        micro-batches takes k times the traffic.

    How it is measured:
        The backward passes between two steps that DDP reduced.

    How to fix it:
        Run all micro-batches but the last one under `with model.no_sync():`, forward included.

    Fix safety:
        Safe: the gradients stay the same. `model.require_backward_grad_sync`, which `no_sync` sets,
        is set where each micro-batch begins. No edit if the script uses either already, or if the
        loop does not tell which micro-batch is the last.

    When it may be wrong:
        If several losses share a model, each with a backward of its own.

    Source:
        torch documentation of DistributedDataParallel.no_sync.
    """

    code: ClassVar[str] = "GS810"
    name: ClassVar[str] = "needless-synchronisation"
    level: ClassVar[Severity] = "note"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of needless reductions."""
        job = context.shared(job_of)
        for one in joined_events(job, "reduced-early"):
            reduced = int(one.number("reduced") or 0)
            late = list(joined_events(job, "no-sync-late"))
            sync = one.rank.lines("written-no-sync")
            yield self.finding(
                context,
                message=(
                    f"{reduced} backward passes before each step are reduced, the last would do"
                    + (": no_sync() does not cover the forward" if late else "")
                ),
                remedy=(
                    "run the forward and backward of all micro-batches but the last under no_sync()"
                ),
                site=one.site,
                related=[
                    *((site, "the backward, or the step, is here") for site in one.related),
                    *((site, "no_sync() is here") for site in sync),
                ],
                evidence={"passes_reduced": reduced, "steps_concerned": one.count},
                count=one.count,
                step=one.event.step,
                ranks=one.ranks,
            )
