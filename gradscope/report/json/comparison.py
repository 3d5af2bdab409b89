"""A comparison as JSON, by `gradscope/schemas/compare-1.json`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.curves import CurveKind
from gradscope.comparison.findings import ComparedFinding, Standing
from gradscope.comparison.matching import Renaming
from gradscope.comparison.parameters import Change
from gradscope.comparison.regressions import Outcome, RegressionKind
from gradscope.comparison.side import Side as SideFacts
from gradscope.recording.finding import Severity
from gradscope.recording.records import Reach
from gradscope.report.documents.comparison_phrasing import norm_limit, regression_text
from gradscope.report.finding_phrasing import next_of_comparison
from gradscope.report.json.parts import Environment, Finding, Meta, Rules, Subject
from gradscope.report.json.shape import (
    INLINE,
    Count,
    Finite,
    Given,
    Named,
    Object,
    Of,
    Positive,
    Shape,
    Share,
    Within,
)


class Tolerance(Shape, grows=True):
    """What passes."""

    norm: Annotated[
        Share,
        Of(lambda comparison, _: norm_limit(comparison)),
        "Allowed relative change of a gradient norm.",
    ]
    loss: Annotated[Share, Of("tolerance.loss"), "Allowed relative increase of the loss."]
    cosine: Annotated[Finite, Of("tolerance.cosine")]
    fail_level: Annotated[Severity, Of("tolerance.fail_level")]


class Difference(Shape, grows=True):
    """A circumstance that is not the same in all sides."""

    what: str
    values: tuple[Given, ...]


class RenamedParameters(Shape, grows=True):
    """Parameters that have other names in a side."""

    side: Annotated[str, Of(lambda pair, _: pair[0].letter), "Letter of a side: A is the base."]
    before: Annotated[
        str, Of(lambda pair, _: pair[1].before), "What names of the base have, with its dot."
    ]
    after: Annotated[str, Of(lambda pair, _: pair[1].after), "What those of the side have there."]
    parameters: Annotated[Count, Of(lambda pair, _: pair[1].parameters)]


class Regression(Shape, grows=True):
    """What became worse than it may."""

    kind: RegressionKind
    side: Annotated[
        str,
        Of(lambda one, comparison: comparison.sides[one.side].letter),
        "Letter of a side: A is the base.",
    ]
    subjects: Annotated[tuple[str, ...], "Parameters, the worst first; a rule; an optimizer."]
    text: Annotated[str, Of(regression_text), "In words."]
    before: Annotated[float | None, "Value in the base; for several parameters that of the worst."]
    after: float | None
    limit: Annotated[float | None, "What may pass."]


class Verdict(Shape, grows=True):
    """The result that a check would have, whether it is one or not."""

    outcome: Annotated[Outcome, Of("verdict.outcome")]
    is_gate: Annotated[bool, Of("is_check"), "Whether failed means exit code 1."]
    obstacles: Annotated[
        tuple[str, ...], Of("verdict.skip_reasons"), "Why nothing can be compared."
    ]
    regressions: Annotated[tuple[Regression, ...], Of("verdict.regressions")]


class Agreement(Shape, grows=True):
    """Agreement of a side's gradients with the base's."""

    cosine: Annotated[
        float | None, Of("total.cosine"), "Between all kept gradients and the base's."
    ]
    relative_difference: Annotated[float | None, Of("total.relative_difference")]
    kept_steps: Annotated[
        tuple[Count, ...],
        Of(lambda found, _: () if found is None else found.steps),
        "Steps of runs whose gradients are compared: for each parameter the first that both have "
        "stored.",
    ]


def _agreement(side: SideFacts, comparison: Comparison) -> Within:
    letters = [one.letter for one in comparison.sides]
    return Within(comparison.directions[letters.index(side.letter)], comparison)


class SideRanks(Shape):
    """The distributed job of a side."""

    world_size: Positive
    strategy: Annotated[Given, "How the model is spread, as DDP or FSDP2 over 4."]
    recorded: Annotated[
        tuple[Count, ...],
        Of(lambda job, _: tuple(row.rank for row in job.rows)),
        "Ranks that were given.",
    ]
    missing: Annotated[tuple[Count, ...], "Ranks without a recording."]
    is_joined: Annotated[
        bool,
        Of("is_joinable"),
        "Whether norms of sharded parameters are joined from all ranks.",
    ]


class _Job(Shape):
    """A side's job, if it has one."""

    ranks: Annotated[SideRanks, Of("")]


class Side(Shape, grows=True):
    """A recording, and the facts that concern all of it."""

    letter: Annotated[str, "Letter of a side: A is the base."]
    name: Annotated[str, "Name as given by the user."]
    rank: Annotated[Count | None, "By the file's name."]
    job: Annotated[_Job | None, INLINE, Of("report.job")]
    is_run: bool
    steps: Annotated[Count, "Number of steps of a run."]
    step: Annotated[Count | None, "The one that is compared; null where all of a run are."]
    loss: Annotated[float | None, "Loss of the step; for a run that of the last compared step."]
    grad_norm: Annotated[float | None, "Global gradient norm of the step; for a run the median."]
    parameters: Annotated[Count, Of(lambda side, _: len(side.parameters))]
    agreement: Annotated[Agreement, INLINE, Of(_agreement)]
    command: Annotated[str, Of("report.command")]
    target: Annotated[Subject, Of("report.target")]
    environment: Annotated[Environment, Of("report.environment")]
    ending: Annotated[
        str | None,
        Of("report.training_run.ending.line"),
        "How a run ended, where that was not the usual way.",
    ]
    rules: Annotated[Rules, Of("report.rules")]


class SideCurve(Shape, grows=True):
    """A number over the steps of a side."""

    steps: tuple[Count, ...]
    values: tuple[float, ...]


class Parting(Shape, grows=True):
    """Point at which a side departs from the base."""

    common_steps: Annotated[Count, Of("common")]
    first_different: Count | None
    first_beyond: Annotated[
        Count | None, "The first step in which both differ by more than the tolerance."
    ]
    base_end: float
    end: float
    increase: float


class Curve(Shape, grows=True):
    """A number over the steps of every side."""

    curve: Annotated[CurveKind, Of("kind")]
    optimizer: Annotated[Given, "Null where the base has no other."]
    sides: tuple[SideCurve | None, ...]
    partings: tuple[Parting | None, ...]


class SideParameter(Shape, grows=True):
    """A parameter in a side."""

    name: str
    shape: Annotated[tuple[Count, ...], Of("shape.dims")]
    dtype: Annotated[str, Of("shape.dtype")]
    numel: Count
    reach: Reach | Literal["unknown"]
    reason: str | None
    grad_norm: Annotated[
        float | None, Of("norm"), "Gradient norm; for a run the median over the compared steps."
    ]
    weight_norm: float | None
    nonfinite: Annotated[Count | None, "Elements, null if not counted; of a run, steps."]


class Pair(Shape, grows=True):
    """A parameter in a side, compared with the base."""

    change: Change
    ratio: Annotated[float | None, "Gradient norm over the base's."]
    weight_ratio: float | None
    cosine: float | None
    relative_difference: float | None
    first_difference: Annotated[Count | None, "The first step of runs with other norms."]


class Parameter(Shape, grows=True):
    """A parameter in every side, and how it differs from the base."""

    name: Annotated[str, "In the first side that has it."]
    sides: tuple[SideParameter | None, ...]
    pairs: tuple[Pair | None, ...]


def _standings(one: ComparedFinding, _: Comparison) -> list[Standing | None]:
    return [None, *(one.standing(position) for position in range(1, len(one.findings)))]


def _by_side(one: ComparedFinding, comparison: Comparison) -> Iterator[Within | None]:
    for finding, side in zip(one.findings, comparison.sides, strict=True):
        yield None if finding is None else Within(finding, side.report)


class Cause(Shape, grows=True):
    """A cause, as each side that has it shows it."""

    standings: Annotated[
        tuple[Standing | None, ...],
        Of(_standings),
        "Against the base; null of the base, and where neither has it.",
    ]
    sides: Annotated[tuple[Finding | None, ...], Of(_by_side)]


def _renamings(comparison: Comparison, _: Comparison) -> Iterator[tuple[SideFacts, Renaming]]:
    for side, renamings in zip(comparison.sides, comparison.renamings, strict=True):
        yield from ((side, one) for one in renamings)


class Whole(Shape, grows=True):
    """Lists named sides, pairs, partings, standings and values have an entry a side, in order."""

    meta: Annotated[Meta, INLINE, Of()]
    of_ranks: Annotated[bool, "Whether the sides are the ranks of one distributed training."]
    steps: Annotated[Count, "Number of compared steps of runs; 0 for single steps."]
    tolerance: Annotated[Tolerance, Of()]
    differences: Annotated[tuple[Difference, ...], "In how the recordings were made."]
    renamings: Annotated[
        tuple[RenamedParameters, ...],
        Of(_renamings),
        "Under which names parameters are the same.",
    ]
    verdict: Annotated[Verdict, Of()]
    sides: tuple[Side, ...]
    curves: tuple[Curve, ...]
    parameters: tuple[Parameter, ...]
    findings: tuple[Cause, ...]
    next_command: Annotated[
        str | None,
        Named("next"),
        Of(lambda comparison, _: next_of_comparison(comparison) or None),
        "Command to run next; null where there is none.",
    ]


LINES: Mapping[str, str] = {
    "verdict": "verdict",
    "sides": "side",
    "curves": "curve",
    "parameters": "parameter",
    "findings": "finding",
}
"""Kinds of lines by key, in their order."""


def comparison_object(comparison: Comparison) -> Object:
    """Return the whole comparison."""
    return Whole.write(comparison, comparison)
