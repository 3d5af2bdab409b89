"""The base of a comparison beside one other side."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.findings import ComparedFinding, Standing
from gradscope.comparison.parameters import ComparedParameter, ParameterPair
from gradscope.comparison.regressions import ComparisonVerdict, Outcome
from gradscope.comparison.side import SideParameter
from gradscope.report.html.module_places import ModulePlaces

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """A parameter that one of the two has at least."""

    place: int
    """In the order of the model."""
    rank: int
    """By how much it changed, the most first: its row in the table, by which pictures know it."""
    name: str
    module: int | None
    """The row of its module in the base; None of one that the base has not."""
    base: SideParameter | None
    other: SideParameter | None
    pair: ParameterPair


def pair_of(comparison: Comparison, place: int) -> Comparison:
    """Return the comparison of the base with one other side alone."""
    regressions = tuple(one for one in comparison.verdict.regressions if one.side == place)
    verdict = comparison.verdict
    outcome: Outcome = "unjudged" if verdict.obstacles else "failed" if regressions else "passed"
    return replace(
        comparison,
        sides=_both(comparison.sides, place),
        differences=tuple(
            replace(one, values=values)
            for one in comparison.differences
            if len(set(values := _both(one.values, place))) > 1
        ),
        renamings=_both(comparison.renamings, place),
        directions=_both(comparison.directions, place),
        parameters=tuple(
            replace(one, sides=_both(one.sides, place), pairs=_both(one.pairs, place))
            for one in comparison.parameters
            if any(_both(one.sides, place))
        ),
        findings=tuple(
            ComparedFinding(findings=_both(one.findings, place))
            for one in comparison.findings
            if any(_both(one.findings, place))
        ),
        curves=tuple(
            replace(one, sides=_both(one.sides, place), partings=_both(one.partings, place))
            for one in comparison.curves
        ),
        verdict=ComparisonVerdict(
            outcome=outcome,
            regressions=tuple(replace(one, side=1) for one in regressions),
            obstacles=verdict.obstacles,
        ),
    )


def _both(values: tuple[_Kind, ...], place: int) -> tuple[_Kind, ...]:
    return values[0], values[place]


def pair_rows(pair: Comparison) -> list[PairRow]:
    """Return the parameters of two sides, in the order of the base."""
    modules = ModulePlaces(pair.sides[0].report)
    worst = sorted(range(len(pair.parameters)), key=lambda at: pair.parameters[at].worst)
    ranks = {place: rank for rank, place in enumerate(worst)}
    return [
        PairRow(
            place=place,
            rank=ranks[place],
            name=one.name,
            module=modules.of(_module(one)),
            base=one.sides[0],
            other=one.sides[1],
            pair=found,
        )
        for place, one in enumerate(pair.parameters)
        if (found := one.pairs[1]) is not None
    ]


def _module(one: ComparedParameter) -> str | None:
    return next((side.module for side in one.sides if side is not None), None)


def by_standing(pair: Comparison) -> Iterator[tuple[Standing, ComparedFinding]]:
    """Yield findings with what became of them: what came, what went, what stayed."""
    order: tuple[Standing, ...] = ("came", "worse", "went", "milder", "stayed")
    standings = [(one.standing(1), one) for one in pair.findings]
    for wanted in order:
        yield from ((wanted, one) for standing, one in standings if standing == wanted)
