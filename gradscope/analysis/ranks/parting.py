"""Parameters that begin equal on all ranks and part, where no wrapper says what should be equal."""

from collections.abc import Iterable

from gradscope.analysis.job import Job, Rank
from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.recording.evidence.ranks import Moment

_PASSES = 3
"""Number of batches that show which ranks work on the same data."""


def parted(job: Job, names: Iterable[str]) -> list[str]:
    """Return the parameters that all ranks begin with equally, and later have differently."""
    steps = job.common_steps("weight") if job.is_joined else []
    if len(steps) < 2:
        return []
    first, last = steps[0], steps[-1]
    return [
        name
        for name in names
        if _is_equal(job, "weight", first, name) is True
        and _is_equal(job, "weight", last, name) is False
    ]


def own_parts(job: Job) -> set[str]:
    """Return the parameters of modules that begin apart and whose gradients are not reduced.

    Examples are the experts of a rank, in a job that reduces the gradients of all others. Their
    biases may begin equal.
    """
    weights, steps = job.common_steps("weight"), job.common_steps("step")
    if not weights or not steps:
        return set()
    modules = {
        _module_of(name)
        for name in job.shared_names
        if _is_equal(job, "weight", weights[0], name) is False
        and _is_equal(job, "step", steps[0], name) is False
    }
    return {name for name in job.shared_names if _module_of(name) in modules}


def parted_without_gradient(job: Job) -> list[str]:
    """Return the parted parameters that nothing trains, and that every rank's model uses.

    Examples are the weights of a teacher that follow those of the model.
    """
    quiet = [name for name in job.shared_names if name not in job.trained_names]
    uses = [_used_without_gradient(rank) for rank in job.ranks]
    found = parted(job, quiet)
    return found if all(used.intersection(found) for used in uses) else []


def parted_beside_shards(job: Job) -> list[str]:
    """Return the parted parameters of a model whose layers the script itself spreads over ranks.

    Its ranks work on the same batches, meet in the forward, and begin with parts of their own. A
    module of which all parameters begin equal, a matrix among them, is no part.
    """
    if job.strategy or job.averages_weights or not _have_same_batches(job.ranks):
        return []
    if not all(rank.events.get("reduced-too-early") for rank in job.ranks):
        return []
    steps = job.common_steps("weight")
    trained = [name for name in job.shared_names if name in job.trained_names]
    own = {name for name in trained if steps and _is_equal(job, "weight", steps[0], name) is False}
    parts = {_module_of(name) for name in own}
    found = [name for name in parted(job, trained) if _module_of(name) not in parts]
    values = job.first.squares("weight", steps[0]) if steps else {}
    has_matrix = any(
        len(job.first.placements[name].shape) > 1 and values.get(name) for name in found
    )
    return found if own and has_matrix else []


def parted_between_groups(job: Job) -> list[str]:
    """Return the parted parameters that DDP averages over groups of ranks with equal batches.

    Ranks with other batches are in other groups: the groups cross the wrong dimension.
    """
    names = [name for name in job.shared_names if name in job.trained_names]
    sizes = {rank.placements[name].copies for rank in job.ranks for name in names}
    if len(sizes) != 1 or not 1 < min(sizes) < job.world_size or job.missing:
        return []
    by_batches: dict[tuple[str | None, ...], list[Rank]] = {}
    for rank in job.ranks:
        by_batches.setdefault(tuple(one.digest for one in rank.passes), []).append(rank)
    alike = list(by_batches.values())
    if len(alike) < 2 or not all(len(ranks) in sizes for ranks in alike):
        return []
    if not all(_have_same_batches(ranks) for ranks in alike):
        return []
    found = parted(job, names)
    is_within = any(parted(Job(tuple(ranks)), found) for ranks in alike)
    return [] if is_within else found


def _is_equal(job: Job, moment: Moment, step: int, name: str) -> bool | None:
    """Return whether all ranks have the same norm of a parameter; None if one is unknown."""
    values = [rank.squares(moment, step).get(name) for rank in job.ranks]
    known = [value for value in values if value is not None]
    return agree(known, 2 * AGREEMENT) if len(known) == len(values) else None


def _have_same_batches(ranks: Iterable[Rank]) -> bool:
    """Return whether ranks have equal batches in all compared passes."""
    found = {tuple(one.digest for one in rank.passes) for rank in ranks}
    if len(found) != 1:
        return False
    (digests,) = found
    return len(digests) >= _PASSES and None not in digests


def _used_without_gradient(rank: Rank) -> set[str]:
    parameters = rank.recording.parameters
    indices = (int(event.subject) for event in rank.events.get("used-without-gradient", ()))
    return {parameters[index].name for index in indices if index < len(parameters)}


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]
