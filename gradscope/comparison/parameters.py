"""The parameters of all sides, matched, and how each differs from the base."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Literal, get_args

from gradscope.analysis.rows import quotient
from gradscope.comparison.matching import Matching
from gradscope.comparison.side import Series, Side, SideParameter
from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord, Recording
from gradscope.recording.stored_gradient import Agreement, StoredGradient, agreement

_LIMITS = {"float16": 7e-3, "bfloat16": 5e-2}
"""Largest ratio of such a gradient to the gradients around it, by root mean square."""
_LIMIT = 3e-5
_SLACK, _LARGEST_SHARE = 10.0, 0.05
"""If one gradient is rounding, the other may exceed its limit by this factor, up to this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """The agreement of a side's gradients with the base's."""

    by_parameter: Mapping[int, Agreement]
    """Agreement by index of the parameter in the base."""
    total: Agreement | None
    """Agreement of all parameters together; None unless both sides stored gradients."""
    steps: tuple[int, ...]
    """Steps of the runs that the gradients belong to."""


def directions_of(
    base: Side, other: Side, matching: Matching, steps: Collection[int]
) -> Directions:
    """Return the agreement of stored gradients.

    Of runs, a parameter's gradients are compared in the first step in which both were kept: from
    there on the weights are others, and with them the gradients.

    Args:
        base: The first side.
        other: The other.
        matching: Of their parameters.
        steps: Those that are compared of runs; of single steps the judged ones are.
    """
    ours, theirs = _by_step(base, steps), _by_step(other, steps)
    common = sorted(ours.keys() & theirs.keys())
    found: dict[int, Agreement] = {}
    used = set()
    for own, its in matching.pairs:
        first = next((s for s in common if own in ours[s] and its in theirs[s]), None)
        agreed = None if first is None else agreement(ours[first][own], theirs[first][its])
        if first is not None and agreed is not None:
            found[own] = agreed
            used.add(first)
    return Directions(
        by_parameter=found,
        total=reduce(add, found.values()) if found else None,
        steps=tuple(sorted(used)) if base.is_run and other.is_run else (),
    )


def _by_step(side: Side, steps: Collection[int]) -> dict[int, dict[int, StoredGradient]]:
    """Return the stored gradients by step and parameter; a single step has the key 0."""
    found: dict[int, dict[int, StoredGradient]] = {}
    for one in side.report.recording.stored_gradients:
        is_wanted = one.step in steps if side.is_run else one.step == side.step
        if is_wanted:
            key = one.step if side.is_run and len(steps) > 1 else 0
            found.setdefault(key, {})[one.parameter] = one
    return found


Change = Literal[
    "non-finite",
    "lost",
    "zero",
    "frozen",
    "reshaped",
    "norm",
    "turned",
    "finite",
    "gained",
    "missing",
    "new",
    "within",
    "rounding",
    "shard",
    "equal",
    "none",
]
"""Difference of a side's parameter from the base's, the worst first. `non-finite`, `lost`, `zero`,
`frozen`: state of a gradient that the base has; `finite` and `gained` are the reverse. `norm`: the
norm is outside the tolerance. `turned`: the norm is within it, and the cosine of both gradients is
below its limit; `within`: both are within, and not equal. `rounding`: on both sides the gradient is
the rounding error of a zero, such as that of a bias before a normalisation. `shard`: each rank
holds a part of its own, and the norms are those of the parts. `none`: neither side has a gradient.
"""

CHANGES: tuple[Change, ...] = get_args(Change)

WORSE: tuple[Change, ...] = ("non-finite", "lost", "zero", "frozen", "norm", "turned")
"""Changes that are regressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPair:
    """How a parameter of a side differs from the same one of the base."""

    change: Change
    ratio: float | None
    """Gradient norm over that of the base; None without one of them, or if the base's is 0."""
    weight_ratio: float | None
    """Ratio of the weight norms to the base's."""
    cosine: float | None
    """Cosine between both gradients, if they were stored."""
    relative_difference: float | None
    """Norm of their difference over the norm of the larger one, if they were stored."""
    first_difference: int | None
    """First common step of runs in which gradient or weight norms differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedParameter:
    """A parameter, by the name in the first side that has it."""

    name: str
    sides: tuple[SideParameter | None, ...]
    """Parameter of each side; None if the side has no such parameter."""
    pairs: tuple[ParameterPair | None, ...]
    """Comparison of each side with the base; None for the base itself."""

    @property
    def change(self) -> Change:
        """The worst change in any side."""
        return min((pair.change for pair in self.pairs if pair), key=CHANGES.index)

    @property
    def worst(self) -> tuple[int, float]:
        """Sort key of parameters: the worst change, then the difference of the norm."""
        pairs = [pair for pair in self.pairs if pair is not None]
        return min(map(rank_of, pairs), default=(len(CHANGES), 0.0))


def rank_of(pair: ParameterPair) -> tuple[int, float]:
    """Return the sort key of pairs: the worst change, then the difference of the norm."""
    if pair.change == "turned":
        return CHANGES.index(pair.change), pair.cosine if pair.cosine is not None else 0.0
    return CHANGES.index(pair.change), -distance(pair.ratio)


def share_off(ratio: float) -> float:
    """Return the relative deviation of a ratio from 1, the same for x and 1 / x."""
    larger = math.inf if ratio == 0 else ratio if ratio >= 1 else 1 / ratio
    return larger - 1


def distance(ratio: float | None) -> float:
    """Return the distance of a ratio from 1, the same for x and 1 / x."""
    if ratio is None or math.isnan(ratio):
        return 0.0
    return math.inf if ratio in (0.0, math.inf) else abs(math.log(ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What passes between two gradients."""

    norm: float
    """Allowed relative change of a norm."""
    cosine: float
    of_ranks: bool
    """Whether the parts of a sharded parameter belong to one parameter."""


def compared_parameters(
    sides: Sequence[Side],
    matchings: Sequence[Matching],
    directions: Sequence[Directions],
    limits: Limits,
) -> tuple[ComparedParameter, ...]:
    """Return the parameters of all sides, the base's in its order, then new ones.

    Args:
        sides: The base first.
        matchings: Of each other side with the base.
        directions: Likewise.
        limits: Of what is within the tolerance.
    """
    base = sides[0]
    partners = [dict(matching.pairs) for matching in matchings]
    noise = [rounding_limits(side) for side in sides]
    rows = []
    for position, own in enumerate(base.parameters):
        positions = [position, *(found.get(position) for found in partners)]
        of_sides = tuple(
            None if at is None else side.parameters[at]
            for side, at in zip(sides, positions, strict=True)
        )
        pairs = tuple(
            _pair(
                own,
                one,
                directions[turn].by_parameter.get(position),
                limits,
                is_noise=one is not None and are_rounding((own, noise[0]), (one, noise[turn + 1])),
            )
            for turn, one in enumerate(of_sides[1:])
        )
        rows.append(ComparedParameter(name=own.name, sides=of_sides, pairs=(None, *pairs)))
    return (*rows, *_new(sides, matchings))


def _new(sides: Sequence[Side], matchings: Sequence[Matching]) -> Iterator[ComparedParameter]:
    """Yield the parameters that the base lacks, those of one name together."""
    found: dict[str, dict[int, SideParameter]] = {}
    for turn, (side, matching) in enumerate(zip(sides[1:], matchings, strict=True), 1):
        matched = {other for _, other in matching.pairs}
        for position, one in enumerate(side.parameters):
            if position not in matched:
                found.setdefault(one.name, {})[turn] = one
    new = _without_numbers("new")
    for name, by_side in found.items():
        yield ComparedParameter(
            name=name,
            sides=tuple(by_side.get(turn) for turn in range(len(sides))),
            pairs=tuple(new if turn in by_side else None for turn in range(len(sides))),
        )


def _without_numbers(change: Change) -> ParameterPair:
    return ParameterPair(
        change=change,
        ratio=None,
        weight_ratio=None,
        cosine=None,
        relative_difference=None,
        first_difference=None,
    )


def _pair(
    base: SideParameter,
    other: SideParameter | None,
    direction: Agreement | None,
    limits: Limits,
    *,
    is_noise: bool,
) -> ParameterPair:
    if other is None:
        return _without_numbers("missing")
    if limits.of_ranks and base.is_shard and other.is_shard:
        return _without_numbers("shard")
    cosine = None if direction is None else direction.cosine
    ratio = quotient(other.norm, base.norm)
    first = _first_difference(base.series, other.series)
    change = _reach_change(base, other)
    # One machine rounds such a gradient to exactly zero, another one does not.
    if change in ("zero", "gained") and is_noise:
        change = "rounding"
    if change is None:
        is_apart = direction is not None and direction.difference > 0
        is_equal = first is None and not is_apart and _is_equal(base, other)
        change = _number_change(ratio, cosine, limits, is_equal=is_equal, is_noise=is_noise)
    return ParameterPair(
        change=change,
        ratio=ratio,
        weight_ratio=quotient(other.weight_norm, base.weight_norm),
        cosine=cosine,
        relative_difference=None if direction is None else direction.relative_difference,
        first_difference=first,
    )


def _reach_change(base: SideParameter, other: SideParameter) -> Change | None:
    """Return a change of reach; None if both sides have a finite gradient."""
    if base.shape.dims != other.shape.dims:
        return "reshaped"
    if base.reach == "gradient" != other.reach:
        lost: dict[str, Change] = {"zero": "zero", "frozen": "frozen"}
        return lost.get(other.reach, "lost")
    if other.reach == "gradient" != base.reach:
        return "non-finite" if other.nonfinite else "gained"
    if bool(base.nonfinite) != bool(other.nonfinite):
        return "non-finite" if other.nonfinite else "finite"
    return None if base.reach == "gradient" else "none"


def _number_change(
    ratio: float | None,
    cosine: float | None,
    limits: Limits,
    *,
    is_equal: bool,
    is_noise: bool,
) -> Change:
    """Return how two gradients that are there differ in their numbers."""
    is_turned = cosine is not None and cosine < limits.cosine
    # Gradients of equal norms may have other directions.
    if is_equal and not is_turned:
        return "equal"
    if is_noise:
        return "rounding"
    # `distance` is a logarithm: the limit 0.1 passes a factor of 1.1 up or down.
    is_near = ratio is None or math.isnan(ratio) or distance(ratio) <= math.log1p(limits.norm)
    return "norm" if not is_near else "turned" if is_turned else "within"


def _is_equal(base: SideParameter, other: SideParameter) -> bool:
    return all(
        _same(getattr(base, name), getattr(other, name))
        # The largest element tells gradients of equal norm apart where none were stored.
        for name in ("norm", "weight_norm", "absolute_maximum")
    )


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def _first_difference(base: Series | None, other: Series | None) -> int | None:
    """Return the first step in which two runs differ; None if none does, or not both are runs."""
    # Arrays compare in C, and runs that are equal to the bit are frequent. NaN leads to the loop.
    if base is None or other is None or base == other:
        return None
    ours = zip(base.norms, base.weights, strict=True)
    theirs = zip(other.norms, other.weights, strict=True)
    by_step = dict(zip(other.steps, theirs, strict=True))
    for step, (norm, weight) in zip(base.steps, ours, strict=True):
        found = by_step.get(step)
        if found is None or not (_same(norm, found[0]) and _same(weight, found[1])):
            return step
    return next(iter(sorted(set(other.steps) - set(base.steps))), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingLimits:
    """Limits below which a gradient is rounding, by the largest one of its module's parameters.

    A module with one parameter tells nothing: a gradient that has vanished is no rounding.
    """

    largest: Mapping[str, float]
    """Largest root mean square, by module."""
    share: float

    def holds(self, one: SideParameter, slack: float = 1.0) -> bool:
        """Return whether a gradient is below its limit, or below this multiple of it."""
        share = max(min(self.share * slack, _LARGEST_SHARE), self.share)
        # A module without a limit gets one that no gradient is below.
        return one.rms is not None and one.rms <= share * self.largest.get(one.module, -1.0)


def rounding_limits(side: Side) -> RoundingLimits:
    """Return the limits for the gradients of a side."""
    largest: dict[str, float] = {}
    counts = Counter(one.module for one in side.parameters if one.rms is not None)
    for one in side.parameters:
        if one.rms is not None and counts[one.module] > 1:
            largest[one.module] = max(one.rms, largest.get(one.module, 0.0))
    types = ("", *computed_in(side.report.recording))
    share = max(_LIMITS.get(dtype, _LIMIT) for dtype in types)
    return RoundingLimits(largest=largest, share=share)


def are_rounding(*pair: tuple[SideParameter, RoundingLimits]) -> bool:
    """Return whether two gradients are rounding: one clearly, and the other nearly."""
    (one, own), (other, its) = pair
    return (own.holds(one) and its.holds(other, _SLACK)) or (
        own.holds(one, _SLACK) and its.holds(other)
    )


def computed_in(recording: Recording) -> tuple[str, ...]:
    """Return the floating types of a model's parameters and computations."""
    nodes: list[NodeRecord] = list(recording.nodes)
    for captured in recording.captured_steps[:1]:
        nodes += captured.recording.nodes
    found = dict.fromkeys(record.shape.dtype for record in recording.parameters)
    found |= dict.fromkeys(
        shape.dtype for node in nodes for shape in node.outputs if shape is not None
    )
    return tuple(sorted(dtype for dtype in found if "float" in dtype))
