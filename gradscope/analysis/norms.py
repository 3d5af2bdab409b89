"""Norms of norms: of several gradients together, and of a model whose parts ranks hold."""

import math
from collections.abc import Collection, Iterable, Sequence

from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import Moment, ParameterPlacement


def total_norm(norms: Iterable[float]) -> float | None:
    """Return the root of the sum of squares; None without any.

    NaN when one of them is, as torch's own total norm; squares do not overflow.
    """
    known = tuple(norms)
    return norm_of_norms(known) if known else None


def norm_of_norms(norms: Iterable[float], norm_type: float = 2.0) -> float:
    """Return the norm of all gradients from the norm of each."""
    sizes = tuple(norms)
    if norm_type == 2:
        total = math.hypot(*sizes)
        # That of NaN and infinity is infinite.
        is_broken = math.isinf(total) and any(map(math.isnan, sizes))
        return math.nan if is_broken else total
    if any(map(math.isnan, sizes)):
        return math.nan
    largest = max(sizes, default=0.0)
    if math.isinf(norm_type) or math.isinf(largest) or not largest:
        return largest
    # Dividing by the largest keeps powers from overflowing.
    powers = math.fsum((size / largest) ** norm_type for size in sizes)
    return float(largest * powers ** (1 / norm_type))


AGREEMENT = 1e-5
"""Relative difference of norms up to which replicas count as equal. Float32 sums of the same
numbers in another order differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalNorm:
    """The norm of all parameters together at a step."""

    step: int
    norm: float
    partial: tuple[str, ...] = ()
    """Omitted parameters: ranks hold terms of their sum, whose norm is unknown."""


def agree(values: Sequence[float], tolerance: float = AGREEMENT) -> bool:
    """Return whether norms are equal up to rounding; NaN agrees with NaN."""
    if all(map(math.isnan, values)):
        return True
    if not all(map(math.isfinite, values)):
        # NaN differs from itself; its text does not.
        return len(set(map(str, values))) == 1
    return max(values) - min(values) <= tolerance * max(map(abs, values), default=0.0)


def global_norms(
    job: Job, moment: Moment, steps: Collection[int] | None = None
) -> list[GlobalNorm]:
    """Return the global norms at the steps that all ranks measured.

    Squares of sharded parameters add up. A replicated parameter counts once, not once per rank.

    Args:
        job: A job of which every rank was recorded.
        moment: What was measured.
        steps: Steps to join; None for all.
    """
    if job.missing:
        return []
    names = dict.fromkeys(name for rank in job.ranks for name in rank.placements)
    partial = {
        name for rank in job.ranks for name, one in rank.placements.items() if one.kind == "partial"
    }
    wanted = [one for one in job.common_steps(moment) if steps is None or one in steps]
    found = (_global_norm(job, moment, step, names, partial) for step in wanted)
    return [one for one in found if one is not None]


def _global_norm(
    job: Job, moment: Moment, step: int, names: Iterable[str], partial: Collection[str]
) -> GlobalNorm | None:
    squares = [(rank, rank.squares(moment, step)) for rank in job.ranks]
    if not any(known for _, known in squares):
        return None
    total, left_out = 0.0, []
    for name in names:
        held = [(rank, known[name]) for rank, known in squares if name in known]
        if held and name in partial:
            left_out.append(name)
        elif held:
            total += _whole(name, held)
    return GlobalNorm(step=step, norm=math.sqrt(total), partial=tuple(left_out))


def _whole(name: str, held: Sequence[tuple[Rank, float]]) -> float:
    """Return the sum of squares of a whole parameter."""
    values = [value for _, value in held]
    first = held[0][0].placements[name]
    if first.kind == "sharded":
        return whole_square(values, first)
    # A parameter that nothing places is a replica where ranks agree; else each has its own. More
    # ranks than replicas are stages of a pipeline with equal names.
    is_whole = first.kind == "replicated" and len(values) <= first.copies
    if is_whole or agree(values, 2 * AGREEMENT):
        return values[0]
    return math.fsum(values) / max(first.copies, 1)


def whole_square(values: Sequence[float], placement: ParameterPlacement) -> float:
    """Return the sum of squares of a sharded parameter from those of the parts that ranks hold."""
    return math.fsum(values) / max(placement.copies, 1) / _repetitions(values, placement)


def _repetitions(values: Sequence[float], placement: ParameterPlacement) -> int:
    """Return how often each part occurs on ranks outside the mesh of a parameter.

    Tensor parallelism repeats the layers that it does not split. Stages of a pipeline may have
    equal names, and parts of their own.
    """
    inside = math.prod(size for _, size in placement.mesh)
    times = len(values) // inside
    if not placement.mesh or times < 2 or len(values) % inside:
        return 1
    found = sorted(values)
    groups = (found[start : start + times] for start in range(0, len(found), times))
    return times if all(agree(group, 2 * AGREEMENT) for group in groups) else 1
