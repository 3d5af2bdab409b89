"""Sums over the ranks that nothing divides, or that are taken too often."""

from collections.abc import Iterator, Mapping

from gradscope.analysis.ranks.job import Job, Rank
from gradscope.analysis.ranks.parting import begin_apart, have_same_batches, own_parts
from gradscope.frozen import dataclass
from gradscope.recording.records import Site
from gradscope.rules.helpers.jobs import (
    backward_site,
    forward_site,
    joined_events,
    loss_site,
    on_ranks,
    step_site,
)
from gradscope.rules.helpers.ranks.divisors import SAME, divides

_LEAST = 3
"""Minimum number of passes that show a sum."""

_NEAR = 3
"""Number of lines after a reduction in which its sum is divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum over the ranks that makes gradients too large."""

    message: str
    remedy: str
    site: Site | None
    related: tuple[tuple[Site | None, str], ...]
    evidence: Mapping[str, float]
    count: int
    step: int


def wrong_sums(job: Job) -> Iterator[Sum]:
    """Yield the sums over the ranks that make gradients too large."""
    if job.world_size > 1:
        yield from _taken_again(job)
        yield from _without_division(job)
        yield from _of_equal_losses(job)
        yield from _of_experts(job)


def _taken_again(job: Job) -> Iterator[Sum]:
    """Yield reductions of gradients that hold a sum of earlier micro-batches already."""
    subjects = [event.subject for _, event in job.events("divided-by-ranks")]
    if any(".data" in one for one in subjects):
        return  # such a division leaves no trace in the version of the gradient
    size = job.world_size
    for one in joined_events(job, "summed-again"):
        yield Sum(
            message=(
                f"gradients are summed over {size} ranks after each of several backward passes"
                f"{on_ranks(one.ranks, job)}: those of earlier micro-batches count {size} times as"
                " much"
            ),
            remedy="reduce once, after the last micro-batch, or divide after each reduction",
            site=one.site,
            related=(
                (backward_site(one.rank), "the backward adds to a sum over the ranks"),
                (step_site(one.rank), "the step uses them"),
            ),
            evidence={"ranks": size},
            count=one.count,
            step=one.event.step,
        )


def _without_division(job: Job) -> Iterator[Sum]:
    """Yield a division by 1 in place of FSDP's mean, if the loss is one of a rank's own rows."""
    rank, size = job.first, job.world_size
    # FSDP2 sums where its division factor is set to 1; by default it divides by the number of
    # ranks.
    is_sum = any(dict(one.options).get("divisor") == 1.0 for one in rank.wrapped)
    if not is_sum or job.is_tensor_parallel or _is_scaled(rank, size):
        return
    has_totals = bool(rank.events.get("summed-number"))
    passes = [(event.step, dict(event.numbers)) for event in rank.backwards]
    wrong = [step for step, one in passes if _is_of_own_rows(one, has_totals=has_totals)]
    if len(wrong) < max(_LEAST, 0.9 * len(passes)):
        return
    yield Sum(
        message=(
            f"FSDP's division of gradients is switched off, and the loss is a mean over the rows of"
            f" one rank: gradients are summed over {size} ranks, and the step is {size} times as"
            " long"
        ),
        remedy="divide the loss by the tokens or rows of all ranks, or leave the division to FSDP",
        site=next(iter(rank.lines("written-divisor")), None) or loss_site(rank),
        related=(
            (loss_site(rank), "the loss is made here"),
            (backward_site(rank), "the backward is here"),
            (forward_site(rank), "the forward is here"),
        ),
        evidence={"ranks": size},
        count=len(wrong),
        step=wrong[0],
    )


def _is_of_own_rows(backward: Mapping[str, float], *, has_totals: bool) -> bool:
    """Return whether a loss is a mean over the tokens of one rank.

    Args:
        backward: Numbers of its backward.
        has_totals: Whether the script sums numbers over the ranks, which may weight a mean.
    """
    divisor, tokens = backward.get("divided", 1.0), backward.get("tokens", 0.0)
    if backward.get("multiplied", 1.0) != 1.0:
        return False
    if backward.get("reduction") == 1.0:
        return divisor == 1.0 and not has_totals
    return 1 < divisor == tokens


def _of_equal_losses(job: Job) -> Iterator[Sum]:
    """Yield sums of activations whose backward sums the gradients of one loss that all ranks have.

    The layers are spread over the ranks by the script. Each rank computes the whole loss.
    """
    rank, size = job.first, job.world_size
    # A wrapper averages the gradients, which takes the factor away. With a rank missing, it is
    # unknown whether all have the same loss.
    if not job.is_joined or job.missing or job.strategy or job.is_pipelined:
        return
    columns = [[dict(event.numbers) for event in one.backwards] for one in job.ranks]
    losses = [tuple(one.get("loss") for one in column) for column in columns]
    is_divided = any(divides(one.get("divided", 1.0), size) for one in columns[0])
    # Losses must be equal bit for bit in several passes: only one loss that all ranks compute is.
    if len(set(losses)) != 1 or None in losses[0] or len(losses[0]) < _LEAST or is_divided:
        return
    # Ranks that hold equal weights and equal batches are replicas, whose activations nobody sums.
    if _is_scaled(rank, size) or not have_same_batches(job.ranks) or not begin_apart(job):
        return
    for one in joined_events(job, "summed-with-gradient"):
        yield Sum(
            message=(
                f"the backward of {one.event.subject}() sums over {size} ranks again, and all ranks"
                f" have the same loss: gradients before it are {size} times too large"
            ),
            remedy=(
                "use an autograd function that sums in forward and passes the gradient on in"
                " backward"
            ),
            site=one.site,
            related=(
                (loss_site(one.rank), "the loss is made here"),
                (backward_site(one.rank), "the backward is here"),
            ),
            evidence={"ranks": size},
            count=one.count,
            step=one.event.step,
        )


def _of_experts(job: Job) -> Iterator[Sum]:
    """Yield gradients of a rank's own layers that are sums over the batches of all ranks.

    Ranks exchange rows in the forward, so that backward brings gradients of all ranks' losses to
    these layers. Other gradients are means over the ranks.
    """
    rank, size = job.first, job.world_size
    exchanges = rank.lines("exchanged")
    if not job.is_joined or job.missing or job.is_pipelined or job.is_tensor_parallel:
        return
    if not all(one.events.get("exchanged") for one in job.ranks) or not _averages(rank, size):
        return
    own = own_parts(job)
    others = [name for name in job.trained_names if name not in own]
    if not own or not others or not all(map(_is_of_own_mean, job.ranks)):
        return
    if rank.events.get("gradient-hook"):
        return  # which may divide them before they can be measured
    steps = job.common_steps("step")
    factors = [one.scaling(step, own) for one in job.ranks for step in steps]
    known = [one for one in factors if one is not None]
    # A norm that changes between backward and step shows that the script divides, or clips, in
    # between.
    if len(known) < _LEAST or any(abs(one - 1) > SAME for one in known):
        return
    reduced = rank.lines("gradient-reduced")
    yield Sum(
        message=(
            f"gradients of {min(own)} are sums over the rows of {size} ranks, and those of"
            f" {min(others)} are means over the ranks: a step moves the first {size} times as far"
        ),
        remedy="divide the gradients of the layers that only one rank holds by the number of ranks",
        site=next(iter((*reduced, *exchanges)), None),
        related=(
            *((one, "ranks exchange rows here") for one in exchanges[:4]),
            (loss_site(rank), "the loss is made here"),
            (backward_site(rank), "the backward is here"),
            (step_site(rank), "the step uses them"),
        ),
        evidence={"ranks": size, "norm_ratio": known[0]},
        count=len(steps),
        step=steps[0],
    )


def _averages(rank: Rank, size: int) -> bool:
    """Return whether gradients are means over the ranks, and nothing else is divided by these."""
    reduced = rank.lines("gradient-reduced")
    divisions = rank.lines("divided-by-ranks")
    # A division a few lines below a reduction is a part of it. Elsewhere, it may be for the experts
    # alone.
    is_near = all(
        any(one.file == other.file and 0 <= one.line - other.line <= _NEAR for other in reduced)
        for one in divisions
    )
    scaled = [dict(event.numbers) for event in rank.events.get("gradient-scaled", ())]
    is_mean = all(abs(one["ratio"] * (size if one["is_sum"] else 1) - 1) <= SAME for one in scaled)
    kinds = {one.kind for one in rank.wrapped}
    return is_near and (bool(scaled) and is_mean if reduced else kinds == {"DDP"})


def _is_of_own_mean(rank: Rank) -> bool:
    """Return whether all losses of a rank are means over its own rows."""
    passes = [dict(event.numbers) for event in rank.backwards]
    return all(
        one.get("reduction") == one.get("divided", 1.0) == one.get("multiplied", 1.0) == 1.0
        for one in passes
    )


def _is_scaled(rank: Rank, size: int) -> bool:
    """Return whether gradients are divided by the number of ranks before the step."""
    ratios = (rank.scaling(step) for step in rank.steps("step"))
    return any(one is not None and abs(one * size - 1) <= SAME for one in ratios)
