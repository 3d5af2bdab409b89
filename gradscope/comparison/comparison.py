"""The comparison of recordings: the first is the base, each other is compared with it."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from gradscope.analysis.report import Report
from gradscope.comparison.curves import ComparedCurve, compared_curves
from gradscope.comparison.findings import ComparedFinding, compared_findings
from gradscope.comparison.matching import Matching, Renaming, match_parameters
from gradscope.comparison.parameters import (
    ComparedParameter,
    Directions,
    Limits,
    compared_parameters,
    computed_in,
    directions_of,
)
from gradscope.comparison.regressions import ComparisonVerdict, judged
from gradscope.comparison.side import Side, common_steps, rank_of_file, side_of
from gradscope.comparison.tolerance import Tolerance
from gradscope.frozen import dataclass
from gradscope.recording.records import Recording
from gradscope.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A circumstance that is not the same in all sides."""

    what: str
    values: tuple[str, ...]
    """Value of each side; empty if missing or unknown."""


def differences_of(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Return the circumstances that differ."""
    described = [dict(_circumstances(side)) for side in sides]
    return tuple(
        Difference(what=what, values=values)
        for what in described[0]
        if len(set(values := tuple(one[what] for one in described))) > 1
    )


def _circumstances(side: Side) -> Iterator[tuple[str, str]]:
    recording = side.report.recording
    target, environment = recording.target, recording.environment
    yield "script", target.name if side.is_run else ""
    yield "arguments", _arguments(recording) if side.is_run else ""
    yield "model", target.model
    yield "seed", "" if target.seed is None else str(target.seed)
    yield "dtype", _types(recording)
    yield "mode", target.mode
    yield "batch", target.batch
    yield "loss", target.loss
    yield "optimizer", _optimizers(side)
    yield "backward passes per step", _backwards(recording)
    yield "steps before", "" if side.is_run or not side.step else str(side.step)
    yield "gradscope", recording.version
    yield "torch", environment.torch
    yield "python", environment.python
    yield "platform", environment.platform
    yield "device", environment.device
    yield "threads", str(environment.threads)


def _arguments(recording: Recording) -> str:
    """Return the arguments of a script as typed."""
    words = shlex.split(recording.command)
    name = recording.target.name
    # Options of gradscope stand before the script's name, its own arguments behind it.
    positions = [position for position, word in enumerate(words) if word == name]
    return shlex.join(words[positions[0] + 1 :]) if positions else ""


def _types(recording: Recording) -> str:
    """Return `float32`, or `float32 with bfloat16` if computations use that too."""
    own = sorted({record.shape.dtype for record in recording.parameters})
    beside = [dtype for dtype in computed_in(recording) if dtype not in own]
    if not own:
        return ""
    return " and ".join(own) + (f" with {', '.join(beside)}" if beside else "")


def _optimizers(side: Side) -> str:
    run = side.report.training_run
    if run is None:
        return side.report.target.optimizer or ""
    return ", ".join(row.title for row in run.optimizers)


def _backwards(recording: Recording) -> str:
    """Return the number of backward passes before most steps of a run; empty without a run."""
    counts = Counter(event.step for event in recording.events if event.kind == "backward")
    # The last step of an epoch may have fewer passes.
    usual = Counter(counts.values()).most_common(1)
    return str(usual[0][0]) if usual and any(s.kind == "run" for s in recording.steps) else ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Compared recordings."""

    version: str
    """Version of gradscope."""
    command: str
    """Command line as typed."""
    sides: tuple[Side, ...]
    """Compared sides, the base first."""
    of_ranks: bool
    """Whether the sides are the ranks of one distributed training."""
    differences: tuple[Difference, ...]
    """Differences in how the sides were made."""
    renamings: tuple[tuple[Renaming, ...], ...]
    """Renamings of each side, which map its parameter names to those of the base."""
    steps: int
    """Number of compared steps; 0 if a single judged step is compared."""
    directions: tuple[Directions | None, ...]
    """Agreement of each side's stored gradients with the base's; None for the base."""
    parameters: tuple[ComparedParameter, ...]
    findings: tuple[ComparedFinding, ...]
    """Findings, the worst first."""
    curves: tuple[ComparedCurve, ...]
    tolerance: Tolerance
    verdict: ComparisonVerdict
    is_check: bool
    """Whether a regression is a failure."""


def compare(
    reports: Sequence[tuple[str, Report]],
    tolerance: Tolerance,
    *,
    command: str = "",
    step: int | None = None,
    is_check: bool = False,
) -> Comparison:
    """Compare reports with the first of them.

    Args:
        reports: Two or more, each with the name that the user knows it by.
        tolerance: What passes.
        command: As typed, for the record.
        step: Of training runs, the one step to compare.
        is_check: Whether a regression is a failure.

    Raises:
        GradscopeError: They have no step in common.
    """
    steps = common_steps([report for _, report in reports], step)
    sides = tuple(
        side_of(position, name, report, steps) for position, (name, report) in enumerate(reports)
    )
    of_ranks = _are_ranks([name for name, _ in reports])
    limits = Limits(
        norm=tolerance.norm_limit(of_ranks=of_ranks), cosine=tolerance.cosine, of_ranks=of_ranks
    )
    matchings = [
        match_parameters(sides[0].report.recording.parameters, side.report.recording.parameters)
        for side in sides[1:]
    ]
    directions = [
        directions_of(sides[0], side, matching, steps)
        for side, matching in zip(sides[1:], matchings, strict=True)
    ]
    parameters = compared_parameters(sides, matchings, directions, limits)
    names = [{}, *(_names(sides[0], *item) for item in zip(sides[1:], matchings, strict=True))]
    findings = compared_findings(sides, names)
    curves = compared_curves(sides, {"loss": tolerance.loss, "norm": limits.norm})
    return Comparison(
        version=__version__,
        command=command,
        sides=sides,
        of_ranks=of_ranks,
        differences=differences_of(sides),
        renamings=((), *(matching.renamings for matching in matchings)),
        steps=len(steps),
        directions=(None, *directions),
        parameters=parameters,
        findings=findings,
        curves=curves,
        tolerance=tolerance,
        verdict=judged(sides, parameters, findings, curves, tolerance, of_ranks=of_ranks),
        is_check=is_check,
    )


def _are_ranks(names: Sequence[str]) -> bool:
    found = [rank_of_file(name) for name in names]
    known = [one for one in found if one is not None]
    stems, ranks = {stem for stem, _ in known}, {rank for _, rank in known}
    # A file given twice, or another job's, is no further rank of the job.
    return len(ranks) == len(names) and len(stems) == 1


def _names(base: Side, side: Side, matching: Matching) -> dict[str, str]:
    """Return the names of a side's parameters in the base."""
    return {side.parameters[other].name: base.parameters[own].name for own, other in matching.pairs}
