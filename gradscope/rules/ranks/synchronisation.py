"""GS802 and GS810: gradients that ranks do not reduce, or reduce more often than needed."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.analysis.ranks.job import Job
from gradscope.analysis.ranks.parting import tied_weights_apart
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.jobs import (
    JobRule,
    JoinedEvent,
    backward_site,
    forward_site,
    job_of,
    joined_events,
    on_ranks,
    step_site,
)

_SWITCHED = ("step-after-no-sync", "step-before-reduction")
_WRAPPED = "the model is wrapped here"
_UNREDUCED = "step-before-reduction"
_WAYS = {
    "step-after-around": (
        "the forward runs around DDP, which therefore does not average the gradients",
        "call the DDP model itself, not its `.module` or a method of it",
    ),
    "hook": (
        "the communication hook of DDP reduces nothing",
        "register a hook that reduces, or none",
    ),
    "step-after-no-sync": (
        "the last backward before the step runs under no_sync(): its gradients are not averaged",
        "leave no_sync() for the last micro-batch, its forward included",
    ),
    "step-after-late-backward": (
        "a backward adds to gradients that the script has reduced already",
        "reduce the gradients after the last backward before the step",
    ),
    _UNREDUCED: (
        "FSDP2 has not reduced gradients of the last backward when the step runs",
        "call set_requires_gradient_sync(True) before the forward of the last micro-batch",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsynchronisedGradient(JobRule):
    """A step uses gradients that were not reduced over the ranks.

    What it finds:
        A forward around DDP, by `.module` or by a method; a parameter that was added, replaced or
        unfrozen after wrapping, which the reducer does not know; `no_sync` around the last backward
        before a step; a parameter that no wrapper holds in a job that reduces the others; a second
        backward after the script has reduced the gradients. As a warning, an embedding that stages
        of a pipeline tie and that each trains alone.

    Why it matters:
        Each rank updates its replica by the gradients of its own batch. The replicas drift apart,
        and rank 0 saves a model that saw a fraction of the data.

    How it is measured:
        DDP prepares its reduction in its forward, so a backward that reaches its parameters without
        one is not reduced. The parameters that DDP reduces are known since it was constructed.
        With the recordings of several ranks, weights that stay equal are no finding, and weights
        outside of every wrapper that part are. A matrix of a stage of a pipeline counts as tied if
        it begins equal to the embedding of another stage and no rows are looked up in it.

    How to fix it:
        Call the DDP model itself. Wrap the model after all changes of it. Let the last backward of
        an accumulation run outside of `no_sync`, with its forward.

    Fix safety:
        Safe. `model.module(x)` and `model.module.forward(x)` become `model(x)`. No edit for
        other methods of the module, hooks, and parameters that no wrapper holds.

    When it may be wrong:
        If another component averages gradients or weights in a way that is not seen, for example in
        C++.

    Source:
        torch documentation of DistributedDataParallel: parameters must not be added after
        construction, and `no_sync` covers the forward.
    """

    code: ClassVar[str] = "GS802"
    name: ClassVar[str] = "unsynchronised-gradient"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS801", "GS806")
    fix: ClassVar[FixRule | None] = FixRule(safety="safe")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every way around the reduction."""
        job = context.shared(job_of)
        if job.averages_weights:
            return
        for kind in _WAYS:
            for one in joined_events(job, kind):
                # torch's `noop_hook` is meant for measuring backward without communication. Other
                # hooks reduce in ways of their own.
                if kind == "hook" and "noop" not in one.event.subject:
                    continue
                # Shards have no replicas to compare. For replicas, equal weights some steps later
                # prove that something unseen has reduced the gradients.
                if kind == _UNREDUCED or not _stays_equal(job, one.event.step):
                    yield self._way(context, job, one, kind)
        yield from self._unknown(context, job)
        yield from self._outside(context, job)
        yield from self._tied(context, job)

    def _way(self, context: RuleContext, job: Job, one: JoinedEvent, kind: str) -> Finding:
        message, remedy = _WAYS[kind]
        switches = one.rank.lines("written-no-sync") if kind in _SWITCHED else []
        is_shard = kind == _UNREDUCED
        main = next(iter(switches), None) if is_shard else None
        main = main or one.site or backward_site(one.rank)
        steps = one.rank.step_count if kind == "hook" else one.count
        return self.finding(
            context,
            message=f"{message}, in {counted(steps, 'step')}{on_ranks(one.ranks, job)}",
            remedy=remedy,
            site=main,
            related=[
                *((site, "reductions are switched here") for site in switches),
                (backward_site(one.rank), "the backward is here"),
                (step_site(one.rank), "the step uses the gradients"),
                *((one.rank.site(model.site), _WRAPPED) for model in one.rank.wrapped),
            ],
            evidence={"steps_concerned": steps, "steps": one.rank.step_count},
            count=steps,
            step=one.event.step,
            ranks=one.ranks,
        )

    def _unknown(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        groups: dict[tuple[str, int], list[JoinedEvent]] = {}
        for one in joined_events(job, "unknown-parameter"):
            # A parameter that DDP found frozen and did not register is changed by the line that
            # unfreezes it, not by the one that made it.
            is_apart = one.number("replaced") or not one.rank.lines("written-unfreeze")
            site = one.site if is_apart else one.rank.lines("written-unfreeze")[-1]
            key = ("", 0) if site is None else (site.file, site.line)
            groups.setdefault(key, []).append(one)
        for ones in groups.values():
            first = ones[0]
            names = [one.event.subject for one in ones]
            unfrozen = first.rank.lines("written-unfreeze")
            main = unfrozen[-1] if not first.number("replaced") and unfrozen else first.site
            yield self.finding(
                context,
                message=(
                    f"DDP does not know {_listed(names)}, which changed after the model was wrapped"
                    ": each rank steps by its own gradient"
                ),
                remedy="wrap the model after the last change of its parameters",
                site=main,
                related=[
                    *((first.rank.site(one.site), _WRAPPED) for one in first.rank.wrapped),
                    (step_site(first.rank), "the step uses its gradient"),
                    *((site, "gradients are switched on here") for site in unfrozen),
                    (first.site, "the module is made here"),
                ],
                names=names,
                evidence={"parameters_unknown": len(names)},
                count=len(names),
                step=first.event.step,
                ranks=first.ranks,
            )

    def _outside(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield parameters that were equal at first, that no wrapper holds, and that part."""
        kinds = ("unknown-parameter", "ignored")
        reported = tuple(f".{event.subject}" for kind in kinds for _, event in job.events(kind))
        # Events name a parameter within the wrapped model, without the variable that holds it.
        names = [name for name in _apart(job) if not f".{name}".endswith(reported)]
        if (
            not names
            or job.is_by_hand
            or any(any(job.events(kind)) for kind in (*_WAYS,) if kind != "hook")
        ):
            return
        main = forward_site(job.first) or step_site(job.first)
        yield self.finding(
            context,
            message=(
                f"nothing reduces the gradient of {_listed(names)}: its weights are equal at first"
                " and differ between the ranks later"
            ),
            remedy="wrap the module in DDP, or average its gradients before the step",
            site=main,
            related=[
                (backward_site(job.first), "the gradients arrive here"),
                (step_site(job.first), "and are used here"),
                *((site, "reduced before they arrive") for site in _early(job)),
            ],
            names=names,
            evidence={"parameters_apart": len(names), "limit": AGREEMENT},
            count=len(names),
            ranks=[rank.number for rank in job.ranks],
        )

    def _tied(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield weights that stages of a pipeline tie, and that each trains by its own gradient."""
        for one in tied_weights_apart(job):
            ranks = (one.table_rank, one.copy_rank)
            main = step_site(one.copy_rank)
            lookups = one.table_rank.lines("embedded")
            yield self.finding(
                context,
                severity="warning",
                message=(
                    f"{one.table} of rank {ranks[0].number} and {one.copy} of rank "
                    f"{ranks[1].number} begin equal, as tied weights do, and part: nothing adds "
                    "their gradients"
                ),
                remedy="all_reduce the gradient of the tied weight over its stages before the step",
                site=main,
                related=[
                    (backward_site(one.copy_rank), "its gradient arrives here"),
                    (backward_site(one.table_rank), "the embedding's gradient arrives here"),
                    *((line, "rows are looked up here") for line in lookups),
                ],
                names=[one.table] if one.table == one.copy else [one.table, one.copy],
                evidence={"parameters_apart": 1, "limit": AGREEMENT},
                ranks=[rank.number for rank in ranks],
            )


def _early(job: Job) -> list[Site]:
    """Return the lines that reduce gradients before backward, or after the step."""
    return job.first.lines("reduced-too-early")


def _stays_equal(job: Job, step: int) -> bool:
    """Return whether the weights of several ranks are still equal some steps later."""
    if not job.is_joined:
        return False
    later = [one for one in job.common_steps("weight") if one > step]
    return bool(later) and not _differing(job, later[-1], job.shared_names)


def _apart(job: Job) -> list[str]:
    """Return unwrapped parameters that begin equal and end apart."""
    steps = job.common_steps("weight") if job.is_joined else []
    # What has no gradient, such as a moving average, needs no reduction.
    trained = (name for name in job.shared_names if name in job.trained_names)
    names = [n for n in trained if all(r.placements[n].kind == "local" for r in job.ranks)]
    if len(steps) < 2 or not names:
        return []
    # Weights that begin apart are models of their own, or another rule's finding.
    begin = set(_differing(job, steps[0], names))
    if not job.is_data_parallel and (begin or job.is_pipelined):
        return []  # stages of a pipeline, or models of their own
    return [name for name in _differing(job, steps[-1], names) if name not in begin]


def _differing(job: Job, step: int, names: "tuple[str, ...] | list[str]") -> list[str]:
    found = [rank.squares("weight", step) for rank in job.ranks]
    return [
        name
        for name in names
        if all(name in one for one in found)
        and all(rank.placements[name].kind in ("local", "replicated") for rank in job.ranks)
        and not agree([one[name] for one in found], 2 * AGREEMENT)
    ]


def _listed(names: "list[str]") -> str:
    shown = ", ".join(names[:2])
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else " and ".join(names)


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
