"""GS808: results of collectives without a gradient in the loss."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    JobRule,
    backward_site,
    job_of,
    joined_events,
    loss_site,
    on_ranks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherWithoutGradient(JobRule):
    """The result of a collective without gradient enters the loss.

    What it finds:
        `dist.all_gather` of features that require grad, whose result the loss uses; the
        `all_gather` of Lightning without `sync_grads`; an `all_reduce` in place of a value in the
        middle of the graph.

    Why it matters:
        Collectives of `torch.distributed` are invisible to autograd. The gathered features are
        constants, even those of this rank, and part of the gradient is missing.

    How it is measured:
        A gather of a tensor that requires grad is followed through the source of the script to the
        tensor that backward starts from. A script that puts its own tensor back into the result is
        no finding. If it detaches the tensor itself, the finding is a note. A value changed in
        place is looked for in the graph of the loss.

    How to fix it:
        Use `torch.distributed.nn.functional.all_gather`, or put this rank's tensor back:
        `gathered[rank] = features`.

    When it may be wrong:
        If the gathered features are meant as constants, as those of a memory bank.

    Source:
        torch documentation of torch.distributed.nn; the loss of OpenCLIP.
    """

    code: ClassVar[str] = "GS808"
    name: ClassVar[str] = "gather-without-gradient"
    level: ClassVar[Severity] = "warning"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every such collective."""
        job = context.shared(job_of)
        for kind in ("gathered", "value-reduced"):
            for one in joined_events(job, kind):
                is_gather = kind == "gathered"
                # Gathered tensors for a metric never reach the loss. Contrastive losses commonly
                # put the rank's own tensor back, which has its gradient.
                if is_gather and (not one.number("reaches") or one.number("replaced")):
                    continue
                name = one.event.subject
                yield self.finding(
                    context,
                    # Who detaches may want no gradient.
                    severity="note" if one.number("detached") else self.level,
                    message=(
                        f"the result of {name}() enters the loss without a gradient"
                        f"{on_ranks(one.ranks, job)}"
                        if is_gather
                        else f"{name}() changes a value in the graph of the loss"
                        f"{on_ranks(one.ranks, job)}, which its gradient does not know"
                    ),
                    remedy=_remedy(name, is_gather=is_gather, is_off=bool(one.number("disabled"))),
                    site=one.site,
                    related=[
                        (loss_site(one.rank), "the loss is made here"),
                        (backward_site(one.rank), "the backward is here"),
                    ],
                    evidence={"calls": one.count},
                    count=one.count,
                    step=one.event.step,
                    ranks=one.ranks,
                )


def _remedy(name: str, *, is_gather: bool, is_off: bool) -> str:
    if is_off:
        return "pass sync_grads=True to the all_gather of Lightning, or enable gradients around it"
    others = ", or put this rank's own tensor back into it" if is_gather else ""
    return f"use torch.distributed.nn.functional.{_twin(name)}{others}"


def _twin(name: str) -> str:
    return "all_gather" if name.startswith("all_gather") else name
