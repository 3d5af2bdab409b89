"""GS805: clipping by a norm that is not the global one."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.norms import agree, global_norms
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import EventRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    JobRule,
    backward_site,
    forward_site,
    job_of,
    joined_events,
    on_ranks,
    step_site,
)

_LEAST = 3
"""Minimum number of steps in which a sum of squares is that of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNormClip(JobRule):
    """Gradients are clipped by a norm that is not that of the whole gradient.

    What it finds:
        A clip by the norm of the shards that a rank holds; a clip before the script reduces the
        gradients; a returned norm that is not the global one; a norm that counts replicated
        weights once for each rank; slices of a `reduce_scatter` that each rank clips by the norm of
        its own.

    Why it matters:
        Each rank scales its part by another factor, which turns the gradient away from its
        direction. A norm that is too small clips too rarely.

    How it is measured:
        Each rank records the norm of its part after backward and at the step. The ratio of the two
        is compared between ranks, for all parameters and for each. The norm that a clip function
        returned is compared between ranks, and with the norm joined from all parts: sharded
        parameters add up, replicated ones count once. A factor of the world size, of a dimension
        of the mesh such as tp, of the number of shards, or of the root of one of them, is named.
        Slices are clipped by norms of their own if all ranks scale them to the same norm, by other
        factors, in three of the first 16 steps.

    How to fix it:
        Use `torch.nn.utils.clip_grad_norm_` on the DTensors of FSDP2, and `FSDP.clip_grad_norm_` of
        the wrapped model with FSDP1. Clip after the reduction.

    When it may be wrong:
        If each rank clips parameters of its own on purpose, such as local experts.

    Source:
        torch documentation of FullyShardedDataParallel.clip_grad_norm_; torchtitan issue 2318.
    """

    code: ClassVar[str] = "GS805"
    name: ClassVar[str] = "local-norm-clip"
    level: ClassVar[Severity] = "error"

    tolerance: float = 0.01
    """Relative difference of norms that counts. Chosen: far above rounding."""

    factors: float = 1e-3
    """Relative difference of the factors on shards that counts. Chosen: a thousand times the
    rounding of float32. Shards of similar norms are scaled by similar factors."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every clip by a wrong norm."""
        job = context.shared(job_of)
        for one in joined_events(job, "clipped-before"):
            clip = _first_clip(one.rank)
            site = one.site if clip is None else one.rank.site(clip.site)
            yield self.finding(
                context,
                message=(
                    f"gradients are clipped before they are reduced{on_ranks(one.ranks, job)}: each"
                    " rank scales by the norm of its own gradient"
                ),
                remedy="clip after the reduction",
                site=site,
                related=[(one.site, "the gradients are reduced here")],
                count=one.count,
                step=one.event.step,
                ranks=one.ranks,
            )
        if not job.is_joined or job.is_by_hand or job.averages_weights:
            return
        found = (
            self._returned(context, job)
            or self._scaled(context, job)
            or self._counted(context, job)
            or self._sliced(context, job)
        )
        if found is not None:
            yield found

    def _returned(self, context: RuleContext, job: Job) -> Finding | None:
        """Return a finding on a returned norm that is not the global one."""
        columns = [_clips(rank) for rank in job.ranks]
        clipped = set(columns[0]).intersection(*columns[1:])
        norms = global_norms(job, "backward", clipped) if clipped else []
        joined = {one.step: one.norm for one in norms if not one.partial}
        steps = sorted(joined)
        wrong = []
        for step in steps:
            returned = [column[step][0] for column in columns]
            if all(map(math.isfinite, returned)) and joined[step] > 0:
                off = max(abs(norm / joined[step] - 1) for norm in returned)
                context.measured(self.code, "difference", off, self.tolerance, step=step)
                if off > self.tolerance and not _covers_less(job, columns, step):
                    wrong.append((step, returned, off))
        # Most steps must show it, since a few may be clipped in another way.
        if not wrong or 2 * len(wrong) < len(steps):
            return None
        step, returned, off = wrong[0]
        site = job.first.site(columns[0][step][1].site)
        reported = sorted({short(norm) for norm in returned})
        return self.finding(
            context,
            message=(
                f"the clip uses a norm of {' and '.join(reported[:4])}, the global gradient norm "
                f"is "
                f"{short(joined[step])}{_off_by(job, step, returned, joined[step], self.tolerance)}"
            ),
            remedy=_remedy(job),
            site=site,
            related=[(step_site(job.first), "the step is here")],
            evidence={
                "returned_norm": returned[0],
                "global_norm": joined[step],
                "difference": off,
                "limit": self.tolerance,
            },
            count=len(wrong),
            step=step,
            ranks=[rank.number for rank in job.ranks],
        )

    def _scaled(self, context: RuleContext, job: Job) -> Finding | None:
        """Return a finding on shards that each rank scales by a factor of its own."""
        names = [n for n in job.shared_names if job.first.placements[n].kind == "sharded"]
        if not names:
            return None
        scaled, wrong = 0, []
        for step in job.common_steps("step"):
            factors = [rank.scaling(step, names) for rank in job.ranks]
            known = [factor for factor in factors if factor is not None]
            if len(known) < len(job.ranks):
                continue
            # A step whose norm is below the limit has a factor of 1 on each rank, and says nothing
            # on the norm that was used.
            scaled += not agree([1.0, *known], self.factors)
            if not agree(known, self.factors) and self._differ(job, step, names):
                wrong.append((step, known))
        if not wrong or 2 * len(wrong) < scaled:
            return None
        step, factors_of = wrong[0]
        written = _written(job)
        site = next(iter(written), None) or step_site(job.first)
        return self.finding(
            context,
            message=(
                "each rank scales its shards by a factor of its own, "
                f"{' and '.join(short(one) for one in factors_of[:4])} at step {step:,}: a norm "
                "of local shards is not the global norm"
            ),
            remedy=_remedy(job),
            site=site,
            related=[
                *((one, "gradients are written here") for one in written),
                (step_site(job.first), "the step is here"),
                (forward_site(job.first), "the forward is here"),
            ],
            # What tensor parallelism replicates is scaled by them too, and parts.
            explains=("GS802",) if job.is_tensor_parallel else (),
            evidence={
                "smallest_factor": min(factors_of),
                "largest_factor": max(factors_of),
                "difference": max(factors_of) / max(min(factors_of), 1e-30) - 1,
                "limit": self.factors,
            },
            count=len(wrong),
            step=step,
            ranks=[rank.number for rank in job.ranks],
        )

    def _counted(self, context: RuleContext, job: Job) -> Finding | None:
        """Return a finding on squares summed over ranks that hold replicas beside their shards."""
        rank, wrong = job.first, []
        steps = set(job.common_steps("backward"))
        joined = {one.step: one.norm for one in global_norms(job, "backward") if not one.partial}
        sums = [(int(one.subject), one) for one in rank.events.get("summed-number", ())]
        for step, event in sums:
            if step not in steps or not joined.get(step):
                continue
            parts = [math.fsum(one.squares("backward", step).values()) for one in job.ranks]
            whole, value = math.fsum(parts), dict(event.numbers)["value"]
            # Replicas alone would make a factor that a division can remove.
            share = whole / joined[step] ** 2
            is_between = 1 + self.tolerance < share < job.world_size * (1 - self.tolerance)
            if is_between and agree([whole, value], self.tolerance):
                wrong.append((step, event, value**0.5))
        if len(wrong) < _LEAST:
            return None
        step, event, norm = wrong[0]
        site = rank.site(event.site)
        written = _written(job)
        return self.finding(
            context,
            severity="warning",
            message=(
                f"a norm summed over the ranks is {short(norm)}, the global gradient norm is "
                f"{short(joined[step])}: replicated weights count once for each rank"
            ),
            remedy="divide the squares of replicated weights by the number of their ranks",
            site=site,
            related=[
                *((one, "gradients are written here") for one in written[:2]),
                (step_site(rank), "the step is here"),
            ],
            evidence={
                "returned_norm": norm,
                "global_norm": joined[step],
                "difference": norm / joined[step] - 1,
                "limit": self.tolerance,
            },
            count=len(wrong),
            step=step,
            ranks=[one.number for one in job.ranks],
        )

    def _sliced(self, context: RuleContext, job: Job) -> Finding | None:
        """Return a finding on slices of the reduced gradients that each rank clips to one norm."""
        rank, wrong = job.first, []
        columns = [
            {int(e.subject): (e, dict(e.numbers)) for e in one.events.get("slice-scaled", ())}
            for one in job.ranks
        ]
        for step in sorted(set(columns[0]).intersection(*columns[1:])):
            after = [column[step][1]["norm"] for column in columns]
            ratios = [column[step][1]["ratio"] for column in columns]
            # Slices of equal norms before would be scaled alike by the norm of all, too.
            if agree(after, self.factors) and not agree(ratios, self.tolerance):
                wrong.append((step, ratios, after))
        if len(wrong) < _LEAST:
            return None
        step, ratios, after = wrong[0]
        reduced = rank.site(columns[0][step][0].site)
        written = _written(job)
        site = next(iter(written), None) or reduced
        shown = " and ".join(sorted({short(one) for one in ratios})[:4])
        return self.finding(
            context,
            severity="warning",
            message=(
                f"each rank clips its slice of the gradients to a norm of {short(after[0])}, by "
                f"factors of {shown} at step {step:,}: the norm of a slice is not the global norm"
            ),
            remedy="all_reduce the squared norms of the slices, and clip by the root of the sum",
            site=site,
            related=[
                *((one, "gradients are written here") for one in written[:4]),
                (reduced, "the slices are made here"),
                (step_site(rank), "the step is here"),
            ],
            evidence={
                "smallest_factor": min(ratios),
                "largest_factor": max(ratios),
                "limit": self.tolerance,
            },
            count=len(wrong),
            step=step,
            ranks=[one.number for one in job.ranks],
        )

    def _differ(self, job: Job, step: int, names: Collection[str]) -> bool:
        """Return whether ranks scale their shards of one parameter differently.

        Each parameter may have a factor of its own: then the shards of all together differ in it.
        """
        return any(
            not agree(known, self.factors)
            for name in names
            if (known := [one for rank in job.ranks if (one := rank.scaling(step, (name,)))])
        )


def _remedy(job: Job) -> str:
    if "FSDP1" in job.strategy:
        return "call clip_grad_norm_ of the FSDP model"
    return "use torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), before to_local()"


def _off_by(job: Job, step: int, returned: Sequence[float], norm: float, tolerance: float) -> str:
    """Return the deviation of returned norms as text: a known factor, or the rank's own part."""
    parts = [math.sqrt(math.fsum(rank.squares("backward", step).values())) for rank in job.ranks]
    # The rank's own part comes first: with two ranks of similar parts it is close to the root of a
    # size, too.
    if all(agree([part, other], tolerance) for part, other in zip(parts, returned, strict=True)):
        return ": each rank returns the norm of the part that it holds"
    # Ranks that return different norms have no common factor to name.
    if not agree(returned, tolerance):
        return ""
    for name, size in _sizes(job).items():
        for factor, text in ((size, f"{name}, {size}"), (size**0.5, f"the root of {name}, {size}")):
            if agree([returned[0], norm * factor], tolerance):
                return f": too large by {text}"
            if agree([returned[0] * factor, norm], tolerance):
                return f": too small by {text}"
    return ""


def _sizes(job: Job) -> dict[str, int]:
    """Return the numbers of ranks by which norms differ, by kind of norm."""
    meshes = dict.fromkeys(m for one in job.first.placements.values() for m in one.mesh)
    # A dimension of the mesh says more than the world size, so it is tried first.
    found = {f"the size of {name}": size for name, size in meshes if size < job.world_size}
    copies = max((max(one.copies, 1) for one in job.first.placements.values()), default=1)
    found["the number of shards"] = job.world_size // copies
    found["the world size"] = job.world_size
    return {name: size for name, size in found.items() if size > 1}


def _written(job: Job) -> list[Site]:
    """Return the lines that write gradients, those after the backward first."""
    start = backward_site(job.first)
    found = job.first.lines("written-gradient")
    if start is None:
        return found
    return sorted(found, key=lambda site: (site.file != start.file, site.line < start.line))


def _first_clip(rank: Rank) -> EventRecord | None:
    events = rank.recording.events
    return next((event for event in events if event.kind.startswith("clip-")), None)


def _clips(rank: Rank) -> dict[int, tuple[float, EventRecord]]:
    """Return, by step, the norms that clips measured, for steps with one clip of unscaled ones."""
    found: dict[int, list[tuple[float, EventRecord]]] = {}
    for event in rank.recording.events:
        numbers = dict(event.numbers)
        # Only the 2-norm joins over ranks by squares, and a loss scale would be a factor of its
        # own.
        is_plain = numbers.get("norm_type") == 2 and not numbers.get("scaled")
        if event.kind == "clip-norm" and is_plain and "norm" in numbers:
            found.setdefault(event.step, []).append((numbers["norm"], event))
    # Several clips in a step are for parts of the model, each with a norm of its own.
    return {step: ones[0] for step, ones in found.items() if len(ones) == 1}


def _covers_less(
    job: Job, columns: "list[dict[int, tuple[float, EventRecord]]]", step: int
) -> bool:
    """Return whether a clip gets fewer parameters than have gradients."""
    for rank, column in zip(job.ranks, columns, strict=True):
        given = dict(column[step][1].numbers).get("parameters", 0.0)
        measured = rank.squares("backward", step)
        # The norm of a part, as of one of two networks, is rightly smaller than the global one.
        if given < sum(value > 0 for value in measured.values()):
            return True
    return False
