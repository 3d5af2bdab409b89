"""Texts of reports on clipping, for all formats."""

from collections.abc import Iterator

from gradscope.analysis.clipping.limits import ENOUGH, FLAT, SHARES, Advice, Distribution
from gradscope.analysis.clipping.sections import Contribution, Section
from gradscope.phrasing import counted, literal, times_text
from gradscope.recording.evidence.training import ClipMethod, ClipTrial
from gradscope.report.number_format import figure, percent

METHODS: dict[ClipMethod, str] = {
    "norm": "global norm",
    "per-tensor": "each tensor's norm",
    "value": "by value",
    "adaptive": "adaptive",
}
_APPLIED: dict[ClipMethod, str] = {
    "norm": "clipped by global norm",
    "per-tensor": "clipped tensor by tensor",
    "value": "clipped by value",
    "adaptive": "clipped adaptively",
}
_LITTLE = 1.5
"""Factors up to this one are too small a change of the steps' length to report."""


def norm_name(section: Section, *, of: str = "gradient norm") -> str:
    """Return `gradient norm`, with its type if it is not Euclidean."""
    if section.norm_type == 2:
        return of
    return f"{of} of type {literal(section.norm_type)}"


def measured_text(trial: ClipTrial, section: Section) -> str:
    """Return which gradients of a target were measured."""
    count, made = counted(len(section.points), "gradient"), section.made
    early = f" of the {trial.steps:,} asked for" if made < trial.steps else ""
    if not made:
        return f"{count}, with unchanged weights"
    clipped = "not clipped" if trial.applied is None else _APPLIED[trial.applied]
    after = "after them" if trial.batches == 1 else f"{trial.batches:,} after them"
    return f"{count}: before each of {counted(made, 'step')}{early}, {clipped}, and {after}"


def spread_phrase(found: Distribution) -> Iterator[tuple[str, str]]:
    """Yield quantiles by name: `least`, `25 %`, `median` and so on."""
    yield "least", figure(found.least)
    for share, value in zip(SHARES, found.quantiles, strict=True):
        yield _quantile(share), figure(value)
    yield "largest", figure(found.greatest)


def _quantile(share: float) -> str:
    return "median" if share == 0.5 else f"{literal(100 * share)} %"


def headline(section: Section) -> str:
    """Return what dominates the norm if all steps are clipped; empty if nothing does alone."""
    leader = section.contributions.leader
    if leader is None:
        return ""
    power = section.contributions.power
    text = f"`{leader.name}` alone contributes {percent(leader.share)} of the {power}"
    if section.method not in ("norm", None):
        return text
    return f"{text}: it determines when all gradients are clipped"


def cut_text(section: Section) -> str:
    """Return how many steps are clipped, and by how much."""
    known = len(section.points) - len(section.broken)
    cut = section.cut
    if not known:
        return "unknown: no step has a finite norm" if section.points else ""
    text = f"{len(cut):,} of {counted(known, 'step')} ({percent(section.cut_share)})"
    if not cut:
        return text
    factors = sorted(point.coefficient for point in cut)
    mean = sum(factors) / len(factors)
    if len(cut) == 1:
        return f"{text}, to {figure(mean)} of its norm"
    least = figure(factors[0])
    return f"{text}, to {figure(mean)} of their norm on average, min {least}"


def direction_text(section: Section) -> str:
    """Return by how much the direction of the gradients changes; empty if unknown."""
    cosines = section.cosines
    if section.method is None or cosines is None:
        return ""
    if section.method == "norm":
        return "unchanged: all gradients are scaled equally"
    return (
        f"cosine between gradients before and after: median {figure(cosines.median)}, "
        f"min {figure(cosines.least)}"
    )


def rate_text(section: Section) -> str:
    """Return the effect of the clip on the learning rate; empty if nothing is clipped."""
    optimizer, spread = section.optimizer, section.coefficients
    if section.method is None or spread is None or not section.cut:
        return ""
    name = optimizer.title.partition("(")[0] or "the optimizer"
    mean = figure(spread.mean)
    if optimizer.family == "adaptive":
        return (
            f"mostly unchanged: {name} divides by the size of recent gradients. Only steps clipped"
            " more than their neighbours become smaller"
        )
    if optimizer.rate is None:
        return f"{mean} of it on average"
    rate, effective = optimizer.rate, optimizer.rate * spread.mean
    return f"{figure(rate)} → {figure(effective)} in effect: {mean} of it on average"


def advice_text(advice: Advice) -> Iterator[str]:
    """Yield the reasoning behind the recommended limit, sentence by sentence."""
    level = advice.level
    quantiles = ", ".join(
        f"{_quantile(share)} {figure(value)}" for share, value in advice.quantiles
    )
    rule = (
        f"the median {figure(level.median)} plus three deviations of {figure(level.spread)}"
        if level.deviation
        else f"{literal(FLAT)} times the median {figure(level.median)}"
    )
    yield (
        f"auto is {literal(advice.limit)}: {rule}, both robust to outliers. "
        f"It clips {percent(advice.share)} of {counted(level.count, 'step')} "
        f"({quantiles})"
    )
    if level.settled:
        yield atypical_text(advice)
    if level.count < ENOUGH:
        yield f"{counted(level.count, 'step')} are too few to judge outliers: use {ENOUGH} or more"


def atypical_text(advice: Advice) -> str:
    """Return how the first norms differ from the rest."""
    level = advice.level
    first, rest = figure(level.first), figure(level.median)
    if level.still_moves:
        return (
            f"the norm still changes: median {first} in the first half, {rest} in the second. The "
            "limit uses the second half only"
        )
    steps = "step is" if level.settled == 1 else f"{level.settled:,} steps are"
    return (
        f"the first {steps} not typical: median norm {first}, then {rest}. The limit uses the "
        "later steps only"
    )


def exchange_text(section: Section) -> str:
    """Return the effect of the recommended limit on the steps; empty if it is small."""
    given, advised = (
        next((row.mean for row in section.sweep if word in row.mark), None)
        for word in ("given", "auto")
    )
    if section.optimizer.family == "adaptive" or not given or not advised:
        return ""
    times = advised / given
    if _LITTLE > times > 1 / _LITTLE:
        return ""
    change, rate = ("longer", "lower") if times > 1 else ("shorter", "raise")
    factor = times_text(max(times, 1 / times))
    return (
        f"with auto instead of the given limit, steps become {factor} {change} on average: "
        f"{rate} the learning rate by this factor to compare the two"
    )


def nonfinite_text(section: Section) -> str:
    """Return which norms are not finite; empty without any."""
    broken = section.broken
    if not broken:
        return ""
    return (
        f"the norm is NaN or infinite in {counted(len(broken), 'step')}, first in "
        f"{broken[0].step:,}: clipping by norm would make every gradient NaN or zero there "
        "(error_if_nonfinite=True raises instead)"
    )


def rest_text(hidden: tuple[Contribution, ...]) -> str:
    """Return the sum over the parameters that are not shown."""
    return f"{len(hidden):,} more: {percent(sum(one.share for one in hidden))}"


def remarks(section: Section) -> Iterator[str]:
    """Yield remarks on the numbers."""
    if text := nonfinite_text(section):
        yield text
    if section.failure:
        yield f"{section.failure}: the numbers are from a dense copy"
    if section.shares_after:
        yield "shares are of the clipped gradients, as the step uses them"
    if section.limits is not None:
        least, greatest = section.limits
        ends = f"from {literal(least)} to {literal(greatest)}"
        yield f"the limit varies {ends}; the table below uses the last one"
