"""Why replicas part: what differs between ranks before their weights do."""

from collections.abc import Iterator, Sequence

from gradscope.analysis.norms import agree
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.analysis.ranks.parting import (
    apart_without_gradient,
    own_parts,
    parted_beside_shards,
    parted_between_groups,
    parted_replicas,
    parted_without_gradient,
)
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.records import Site
from gradscope.rules.helpers.jobs import (
    JoinedEvent,
    backward_site,
    forward_site,
    joined_events,
    step_site,
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why replicas part."""

    message: str
    remedy: str
    site: Site | None
    related: tuple[tuple[Site | None, str], ...] = ()


def at_the_beginning(job: Job) -> Cause:
    """Return why ranks begin with different weights."""
    related: list[tuple[Site | None, str]] = []
    # A checkpoint that every rank loads makes the weights equal.
    loads = [one for one in joined_events(job, "load") if len(one.ranks) < len(job.ranks)]
    seeds = [one for one in joined_events(job, "seed") if _differs(job, one.site)]
    models = [rank.index.site(m.site) for rank in job.ranks[:1] for m in rank.recording.modules]
    made = [site for site in dict.fromkeys(models) if site is not None][:4]
    for rank in job.ranks[:1]:
        related += [(rank.site(one.site), "the model is wrapped here") for one in rank.wrapped]
        related += [(site, "random numbers are seeded here") for site in rank.lines("written-seed")]
        related += [(site, "gradients are reduced here") for site in reductions(job)]
    related += [(site, "a part of the model is made here") for site in made]
    related += [(step_site(job.first), "the first step is here")]
    if loads:
        return Cause(
            f"only rank {loads[0].ranks[0]} loads weights",
            "load on every rank, or broadcast the weights from rank 0",
            loads[0].site,
            tuple(related),
        )
    site = seeds[0].site if seeds else next(iter(job.first.lines("written-seed")), None)
    site = site or next(iter(made), None) or step_site(job.first)
    why = "each rank has a seed of its own" if seeds else "each rank has made its own"
    return Cause(
        why,
        "seed all ranks equally before the model is made, or broadcast from rank 0",
        site,
        tuple(related),
    )


def drawn_apart(job: Job) -> list[JoinedEvent]:
    """Return the constants that modules drew at random, if they differ between ranks and stay.

    Parts of a rank, such as its experts, may have constants of their own.
    """
    own = {name.rpartition(".")[0] for name in own_parts(job)} if job.is_by_hand else set()
    found = []
    for one in joined_events(job, "drawn"):
        same = [event for _, event in job.events("drawn") if event.subject == one.event.subject]
        numbers = [dict(event.numbers) for event in same]
        # A buffer that changes while training is a statistic or a state, which may be that of a
        # rank.
        is_constant = all(each["norm"] == each["first"] for each in numbers)
        is_own = any(one.event.subject.startswith(f"{module}.") for module in own if module)
        is_apart = not agree([each["norm"] for each in numbers])
        if len(same) == len(job.ranks) > 1 and is_constant and is_apart and not is_own:
            found.append(one)
    return found


def _differs(job: Job, site: Site | None) -> bool:
    """Return whether ranks seed with different numbers at a line."""
    seeds = {
        dict(event.numbers).get("seed")
        for rank, event in job.events("seed")
        if (found := rank.site(event.site))
        and site
        and (found.file, found.line) == (site.file, site.line)
    }
    return len(seeds) > 1


def of_rates(job: Job, step: int) -> Cause | None:
    """Return the cause if learning rates differ before the weights do."""
    changes = {one for rank in job.ranks for one in rank.steps("rate")}
    for one in sorted(change for change in changes if change <= step):
        if len({_rates_at(rank, one) for rank in job.ranks}) == 1:
            continue
        stepped = next((one for rank in job.ranks for one in _scheduled(rank)), None)
        written, made = (job.first.lines(f"written-{one}") for one in ("rate", "schedule"))
        # A trainer steps the schedule in a file of its own.
        is_own = stepped is not None and stepped.file in {one.file for one in (*written, *made)}
        schedulers = [stepped] if stepped is not None and (is_own or not made) else made[:1]
        site = next(iter((*schedulers, *written)), None) or step_site(job.first)
        return Cause(
            "their learning rates differ",
            "decide on the learning rate by a number that all ranks share: all_reduce it first",
            site,
            (
                *((line, "the learning rate is set here") for line in written),
                *((line, "a schedule is made here") for line in made),
                (step_site(job.first), "the step that uses it"),
            ),
        )
    return None


def _scheduled(rank: Rank) -> Iterator[Site]:
    """Yield the lines at which schedules step."""
    for event in rank.recording.events:
        site = rank.site(event.site) if event.kind == "scheduler" else None
        if site is not None:
            yield site


def left_out_of_optimizer(job: Job, apart: Sequence[str]) -> Cause | None:
    """Return the cause if the optimizer of some ranks lacks parameters that others step."""
    held = {rank.number: _held(rank) for rank in job.ranks}
    for name in apart:
        lacking = [rank for rank in job.ranks if name not in held[rank.number]]
        # If no optimizer of any rank holds it, the cause is elsewhere.
        if not lacking or len(lacking) == len(job.ranks):
            continue
        rank = lacking[0]
        sites = [rank.site(one.site) for one in rank.recording.evidence_of(TrainedOptimizer)]
        made = [site for site in dict.fromkeys(sites) if site is not None]
        return Cause(
            f"the optimizer of rank {rank.number} does not hold {name}",
            "give the optimizers of all ranks the same parameters",
            made[0] if made else step_site(rank),
            (
                *((site, "an optimizer is made here") for site in made[1:]),
                (step_site(rank), "the step is here"),
            ),
        )
    return None


def _held(rank: Rank) -> set[str]:
    """Return the names of the parameters that the optimizers of a rank hold."""
    parameters = rank.recording.parameters
    records = rank.recording.evidence_of(TrainedOptimizer)
    return {parameters[index].name for record in records for index in record.parameters}


def _rates_at(rank: Rank, step: int) -> tuple[float | None, ...]:
    """Return the learning rates of a step, which stay until they are recorded anew."""
    before = [one for one in rank.steps("rate") if one <= step]
    return rank.numbers["rate", before[-1]] if before else ()


def after_equal_steps(job: Job, step: int) -> Cause:
    """Return what changes weights besides equal steps."""
    loads = [one for one in joined_events(job, "load") if len(one.ranks) < len(job.ranks)]
    # Weights are compared before a step, so what has changed them happened in the step before.
    at = step_site(job.first, step - 1) or step_site(job.first)
    written = _late(job, job.first.lines("written-weight"))
    branches = _late(job, job.first.lines("written-one-rank"))
    late = [one.site for one in joined_events(job, "load") if one.event.step == step]
    what = "the script changes weights on each rank"
    if loads:
        what = "only one rank loads weights"
    elif branches:
        what = "only some ranks change weights, or what they make their steps with"
    elif late:
        what = "each rank loads weights of its own"
    found = [*(one.site for one in loads), *branches, *late, *written]
    site = next(iter(found), None) or at
    return Cause(
        what,
        "change weights equally on all ranks, or broadcast them",
        site,
        (
            *((line, "some ranks change weights or state here") for line in branches),
            *((line, "weights are loaded here") for line in late),
            *((line, "weights are written here") for line in written),
            (at, "the step is here"),
        ),
    )


def trained_by_some(job: Job, step: int, names: Sequence[str]) -> Cause | None:
    """Return the cause if only some ranks have a gradient of a parameter in a step."""
    found = [rank.squares("step", step) for rank in job.ranks]
    partly = [name for name in names if 0 < sum(name in one for one in found) < len(found)]
    if not partly:
        return None
    lacking = next(r for r, one in zip(job.ranks, found, strict=True) if partly[0] not in one)
    unfrozen = _late(job, job.first.lines("written-unfreeze"))
    return Cause(
        f"rank {lacking.number} has no gradient of {partly[0]}, which other ranks train",
        "freeze and unfreeze parameters in the same steps on all ranks",
        next(iter(unfrozen), None) or step_site(job.first),
        (
            *((line, "gradients are switched on here") for line in unfrozen),
            (backward_site(job.first), "the backward is here"),
            (step_site(job.first), "the step is here"),
        ),
    )


def lines_between(job: Job) -> list[Site]:
    """Return the lines that write gradients, those after the backward first."""
    found = job.first.lines("written-gradient")
    clips = [
        job.first.site(e.site) for e in job.first.recording.events if e.kind.startswith("clip-")
    ]
    return _late(job, [*found, *(site for site in dict.fromkeys(clips) if site is not None)])


def _late(job: Job, found: list[Site]) -> list[Site]:
    """Return lines, those after the backward in its file first."""
    start = backward_site(job.first)
    if start is None:
        return found
    # Gradients are changed after the backward. Lines before it are those of an earlier phase, or of
    # helpers.
    return sorted(found, key=lambda site: (site.file != start.file, site.line < start.line))


def reductions(job: Job) -> list[Site]:
    """Return the lines at which the script reduces gradients itself."""
    return [*job.first.lines("gradient-reduced"), *job.first.lines("flat-reduced")]


def _made(rank: Rank, name: str) -> Site | None:
    """Return the line that made a parameter."""
    records = (one for one in rank.recording.parameters if one.name == name)
    return next((rank.site(one.site) for one in records if one.site is not None), None)


def unwrapped_causes(job: Job) -> Iterator[tuple[Cause, list[str]]]:
    """Yield why parameters part that no wrapper keeps equal, and these parameters."""
    wrapped = [job.first.site(one.site) for one in job.first.wrapped]
    used = [
        (step_site(job.first), "the step that uses their gradients"),
        (backward_site(job.first), "the backward is here"),
        (forward_site(job.first), "the forward is here"),
    ]
    others: list[tuple[Site | None, str]]
    if found := parted_without_gradient(job):
        written = job.first.lines("written-weight")
        calls = job.first.lines("used-without-gradient")
        site = next(iter((*written, *calls)), None) or step_site(job.first)
        others = [(one, "weights are written here") for one in written[:6]]
        others += [(one, "the model with these weights is called here") for one in calls[:2]]
        what = f"{found[0]} begins equal and has no gradient, and not every rank changes it alike"
        yield Cause(what, "change it on every rank", site, tuple(others)), found
    if found := apart_without_gradient(job):
        calls = job.first.lines("used-without-gradient")
        seeds = [one.site for one in joined_events(job, "seed") if _differs(job, one.site)]
        made = _made(job.first, found[0])
        site = made or next(iter(calls), None) or step_site(job.first)
        others = [(one, "its output is used here") for one in calls[:2]]
        others += [(one, "each rank has a seed of its own here") for one in seeds]
        what = f"{found[0]} has no gradient, and every rank has made it of other numbers"
        yield Cause(what, "broadcast it from rank 0", site, tuple(others)), found
    if found := parted_beside_shards(job):
        meets = job.first.lines("reduced-too-early")
        seeds = [one.site for one in joined_events(job, "seed") if _differs(job, one.site)]
        others = [(one, "each rank has a seed of its own here") for one in seeds]
        others += [(one, "ranks meet in the forward or backward here") for one in meets[:4]]
        what = (
            f"{found[0]} begins equal, the ranks share each batch and sum activations, but its"
            " gradient is not the same on all ranks"
        )
        remedy = (
            "sum the gradient of the input of split layers, and draw the same random numbers on all"
            " ranks outside of them"
        )
        yield Cause(what, remedy, step_site(job.first), (*used[1:], *others)), found
    if found := parted_replicas(job):
        locals_ = job.first.lines("written-local")
        site = next(iter(locals_), None) or step_site(job.first)
        others = [(one, "a local tensor is taken here") for one in locals_[1:3]]
        what = (
            f"{found[0]} is replicated over the mesh, and its gradient is not the same on all ranks"
        )
        remedy = "give to_local() grad_placements=[Partial()] where ranks use it on other data"
        yield Cause(what, remedy, site, (*others, *used)), found
    if found := parted_between_groups(job):
        site = next((one for one in wrapped if one is not None), None) or step_site(job.first)
        size = job.first.placements[found[0]].copies
        what = (
            f"DDP averages over groups of {size} of {job.world_size} ranks, whose batches are"
            " equal, and ranks with other batches are in other groups"
        )
        yield Cause(what, "make groups of the ranks with different batches", site, (*used,)), found
