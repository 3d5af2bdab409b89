"""GS809: a sampler that gives the same order in every epoch."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule, related_line
from gradscope.rules.helpers.jobs import JobRule, job_of, joined_events


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOrderEveryEpoch(JobRule):
    """A DistributedSampler shuffles alike in every epoch.

    What it finds:
        A `DistributedSampler` with `shuffle=True` that is iterated again with the same epoch,
        because `set_epoch` is not called.

    Why it matters:
        Its order depends on the seed and the epoch alone. Each rank sees the same examples in the
        same batches in every epoch.

    How it is measured:
        The epoch of the sampler at each iteration that training follows.

    How to fix it:
        Call `sampler.set_epoch(epoch)` before each epoch.

    Fix safety:
        Safe. `sampler.set_epoch(epoch)` is inserted before the loop over batches, if it is in a
        loop `for epoch in range(…)`, with a progress bar or without.

    When it may be wrong:
        If the same order is wanted, for example to repeat a run.

    Source:
        torch documentation of DistributedSampler.
    """

    code: ClassVar[str] = "GS809"
    name: ClassVar[str] = "same-order-every-epoch"
    level: ClassVar[Severity] = "warning"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", line=related_line)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every such sampler."""
        job = context.shared(job_of)
        for one in joined_events(job, "same-order"):
            epochs = int(one.number("alike") or 0)
            yield self.finding(
                context,
                message=f"the sampler gives the same order in {epochs} epochs",
                remedy="call sampler.set_epoch(epoch) before each epoch",
                site=one.site,
                related=[(site, "it is iterated here") for site in one.related],
                evidence={"epochs_alike": epochs, "epochs": one.number("epochs")},
                count=epochs,
                step=one.event.step,
                ranks=one.ranks,
            )
