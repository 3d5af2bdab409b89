"""Parameters that begin equal on all ranks and part, where no wrapper says what should be equal."""

from collections.abc import Iterable, Iterator
from itertools import permutations

from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import Moment

_PASSES = 3
"""Number of batches that show which ranks work on the same data."""


def parted(job: Job, names: Iterable[str]) -> list[str]:
    """Return the parameters that all ranks begin with equally, and later have differently."""
    steps = job.common_steps("weight") if job.is_joined else []
    wanted = list(names)
    if len(steps) < 2 or not wanted:
        return []
    begin, end = (_equality(job, "weight", step, wanted) for step in (steps[0], steps[-1]))
    return [name for name in wanted if begin.get(name) and end.get(name) is False]


def own_parts(job: Job) -> set[str]:
    """Return the parameters of modules that begin apart and whose gradients are not reduced.

    Examples are the experts of a rank, in a job that reduces the gradients of all others. Their
    biases may begin equal.
    """
    weights, steps = job.common_steps("weight"), job.common_steps("step")
    if not weights or not steps:
        return set()
    begin = _equality(job, "weight", weights[0], job.shared_names)
    gradients = _equality(job, "step", steps[0], job.shared_names)
    modules = {
        _module_of(name)
        for name in job.shared_names
        if begin.get(name) is False and gradients.get(name) is False
    }
    return {name for name in job.shared_names if _module_of(name) in modules}


def begin_apart(job: Job) -> list[str]:
    """Return the trained parameters that ranks begin with differently, such as their parts."""
    steps = job.common_steps("weight")
    names = [name for name in job.shared_names if name in job.trained_names]
    begin = _equality(job, "weight", steps[0], names) if steps else {}
    return [name for name, is_equal in begin.items() if not is_equal]


def parted_without_gradient(job: Job) -> list[str]:
    """Return the parted parameters that nothing trains, and that every rank's model uses.

    Examples are the weights of a teacher that follow those of the model.
    """
    quiet = [name for name in job.shared_names if name not in job.trained_names]
    uses = [_used_without_gradient(rank) for rank in job.ranks]
    found = parted(job, quiet)
    return found if all(used.intersection(found) for used in uses) else []


def apart_without_gradient(job: Job) -> list[str]:
    """Return the parameters that nothing trains, that begin apart, and that every rank uses.

    An example is a frozen teacher that each rank has made of its own random numbers.
    """
    steps = job.common_steps("weight") if job.is_joined and job.is_data_parallel else []
    quiet = [
        name
        for name in job.shared_names
        if name not in job.trained_names
        and all(rank.placements[name].kind == "local" for rank in job.ranks)
    ]
    uses = [_used_without_gradient(rank) for rank in job.ranks]
    begin = _equality(job, "weight", steps[0], quiet) if steps else {}
    found = [name for name in quiet if begin.get(name) is False]
    return found if all(used.intersection(found) for used in uses) else []


def parted_beside_shards(job: Job) -> list[str]:
    """Return the parted parameters of a model whose layers the script itself spreads over ranks.

    Its ranks work on the same batches, meet in the forward, and begin with parts of their own. A
    module of which all parameters begin equal, a matrix among them, is no part.
    """
    if job.strategy or job.averages_weights or not have_same_batches(job.ranks):
        return []
    if not all(rank.events.get("reduced-too-early") for rank in job.ranks):
        return []
    steps = job.common_steps("weight")
    trained = [name for name in job.shared_names if name in job.trained_names]
    begin = _equality(job, "weight", steps[0], trained) if steps else {}
    parts = {_module_of(name) for name, is_equal in begin.items() if not is_equal}
    found = [name for name in parted(job, trained) if _module_of(name) not in parts]
    values = job.first.squares("weight", steps[0]) if steps else {}
    # Biases begin equal, as zeros, even where they are parts.
    has_matrix = any(
        len(job.first.placements[name].shape) > 1 and values.get(name) for name in found
    )
    return found if parts and has_matrix else []


def parted_replicas(job: Job) -> list[str]:
    """Return the parted weights that tensor parallelism replicates over all ranks."""
    if not job.is_tensor_parallel:
        return []
    return parted(
        job,
        (
            name
            for name in job.shared_names
            if name in job.trained_names
            and all(
                one.kind == "replicated" and one.mesh and one.copies in (0, job.world_size)
                for rank in job.ranks
                for one in (rank.placements[name],)
            )
        ),
    )


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
    if not all(have_same_batches(ranks) for ranks in alike):
        return []
    found = parted(job, names)
    is_within = any(parted(Job(tuple(ranks)), found) for ranks in alike)
    return [] if is_within else found


def _equality(job: Job, moment: Moment, step: int, names: Iterable[str]) -> dict[str, bool]:
    """Return whether all ranks have equal norms, by name of the parameters that all know."""
    found = [rank.squares(moment, step) for rank in job.ranks]
    return {
        # Squares differ by twice as much as the norms themselves.
        name: agree([one[name] for one in found], 2 * AGREEMENT)
        for name in names
        if all(name in one for one in found)
    }


def have_same_batches(ranks: Iterable[Rank]) -> bool:
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


@dataclass(frozen=True, slots=True)
class TiedWeight:
    """A table of embeddings of one stage, and its copy in another, which uses it otherwise."""

    table: str
    table_rank: Rank
    copy: str
    copy_rank: Rank


def tied_weights_apart(job: Job) -> Iterator[TiedWeight]:
    """Yield the tied weights whose copies begin equal and part.

    A matrix counts as a copy of a table if both have the same shape and begin with the same norm,
    both are trained, and its stage looks up no rows in it. Stages that were seeded alike may begin
    with equal tables, but each looks up rows in its own.
    """
    steps = job.common_steps("weight") if job.is_joined and job.is_pipelined else []
    if len(steps) < 2 or job.is_data_parallel or job.averages_weights:
        return
    for one, other in permutations(job.ranks, 2):
        begin, end = one.squares("weight", steps[0]), one.squares("weight", steps[-1])
        for table in sorted(_tables(one) & one.trained_names & begin.keys() & end.keys()):
            for copy in _copies(one, table, other, steps[0]):
                last = other.squares("weight", steps[-1]).get(copy)
                if last is not None and not agree([end[table], last], 2 * AGREEMENT):
                    yield TiedWeight(table, one, copy, other)


def _copies(rank: Rank, table: str, other: Rank, step: int) -> list[str]:
    """Return the parameters of another rank that begin as copies of a table."""
    values = other.squares("weight", step)
    value, shape = rank.squares("weight", step)[table], rank.placements[table].shape
    return [
        name
        for name in sorted((other.trained_names & values.keys()) - _tables(other))
        if other.placements[name].shape == shape
        and value
        and agree([value, values[name]], 2 * AGREEMENT)
    ]


def _tables(rank: Rank) -> set[str]:
    """Return the parameters in which a rank looks up rows."""
    parameters = rank.recording.parameters
    indices = (int(event.subject) for event in rank.events.get("embedded", ()))
    names = {parameters[index].name for index in indices if index < len(parameters)}
    return names & rank.placements.keys()
