"""One of the compared recordings, and the measurements of its parameters."""

import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from math import isfinite, nan
from statistics import median
from typing import Literal, TypeVar

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.norm_table import NOT_MEASURED, REACHES, measured_in, norms_of
from gradscope.recording.records import Reach, Recording, Shape

Cell = TypeVar("Cell")

_RANK = re.compile(r"(?P<stem>.+)\.rank(?P<rank>\d+)(?P<rest>\.gradscope)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Norms of one parameter in the steps of a run; missing ones are `NOT_MEASURED`."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    """Parameters that are measured in the same steps share them."""
    norms: "array[float]" = field(default_factory=lambda: array("d"))
    weights: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideParameter:
    """A parameter of one side."""

    name: str
    module: str
    """Path of the module that owns it."""
    shape: Shape
    numel: int
    reach: Reach | Literal["unknown"]
    """State after backward; `unknown` if no complete backward was observed. For a run, the best
    state of any step.
    """
    reason: str | None
    """Reason why there is no gradient."""
    norm: float | None
    """Gradient norm; for a run the median over the common steps, non-finite if most are."""
    weight_norm: float | None
    """Weight norm; for a run, that of the last common step."""
    nonfinite: int | None
    """Number of NaN or infinite elements of the gradient, None if not counted; for a run, number of
    such steps.
    """
    absolute_maximum: float | None
    """Largest magnitude of an element of a single step's gradient."""
    is_shard: bool
    """Whether the numbers describe only the part that a rank holds."""
    series: Series | None
    """Norms of a run by step."""

    @property
    def rms(self) -> float | None:
        """Root mean square of the gradient's elements."""
        return None if self.norm is None or not self.numel else self.norm / self.numel**0.5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Side:
    """A recording, with its letter in the comparison."""

    letter: str
    """Letter of the side; `A` is the base."""
    name: str
    """Name as given by the user."""
    rank: int | None
    """Rank in a distributed training, from the file's name."""
    steps: int
    """Number of steps of a run; 0 for a single step."""
    step: int | None
    """Compared step; None if all steps of a run are compared."""
    loss: float | None
    """Loss of the step; for a run, that of the last common step."""
    grad_norm: float | None
    """Global gradient norm; for a run, the median of its steps."""
    parameters: tuple[SideParameter, ...]
    report: Report = field(compare=False)

    @property
    def is_run(self) -> bool:
        """Whether it is a training run, of which many steps are compared."""
        return self.report.training_run is not None

    @property
    def has_gradient(self) -> bool:
        """Whether a parameter has got a gradient, zero or not."""
        return any(one.reach in ("gradient", "zero") for one in self.parameters)


def common_steps(reports: Sequence[Report], step: int | None) -> frozenset[int]:
    """Return the steps in which runs are compared; none if nothing is a run.

    Args:
        reports: Of what is compared.
        step: The one to compare; None for all that they have in common.

    Raises:
        GradscopeError: There is none.
    """
    runs = [report for report in reports if report.training_run is not None]
    if not runs:
        if step is not None:
            raise GradscopeError("--step needs a recording of a training run")
        return frozenset()
    single = [report.summary.step for report in reports if report.training_run is None]
    if step is None and single:
        # A single step is compared with the step of the same index.
        step = single[0] or 0
    common = set.intersection(*(_measured_steps(report.recording) for report in runs))
    if step is not None:
        common &= {step}
    if common:
        return frozenset(common)
    what = "the runs have no step in common" if step is None else f"not every run has step {step:,}"
    raise GradscopeError(
        f"nothing to compare: {what}, with measured gradients",
        help="use gradscope report RECORDING to see what each contains",
    )


def _measured_steps(recording: Recording) -> set[int]:
    return set(norms_of(recording).distinct_steps())


def letter_of(position: int) -> str:
    """Return `A`, `B` … `Z`, `AA`, `AB` …."""
    # Letters have no zero, so the head counts from one less: Z is followed by AA.
    head, last = divmod(position, 26)
    return (letter_of(head - 1) if head else "") + chr(ord("A") + last)


def rank_of_file(name: str) -> tuple[str, int] | None:
    """Return the common name of a job's recordings, and the rank; None for other files."""
    match = _RANK.fullmatch(name)
    return None if match is None else (match["stem"], int(match["rank"]))


def side_of(position: int, name: str, report: Report, steps: Collection[int]) -> Side:
    """Return a side of a comparison.

    Args:
        position: Among all sides; the base is at 0.
        name: As the user knows it.
        report: Of the recording.
        steps: Of runs, those that are compared.
    """
    rank = rank_of_file(name)
    run = report.training_run
    if run is None:
        parameters = tuple(_of_step(row, report.recording) for row in report.parameters)
        loss, norm = report.summary.loss, report.summary.grad_norm
    else:
        parameters = _of_run(report, steps)
        compared = [one for one in run.steps if one.step in steps]
        last = compared[-1] if compared else None
        loss = None if last is None else last.loss
        norms = [one.grad_norm for one in compared if one.grad_norm is not None]
        norm = _median(list(filter(isfinite, norms)), len(norms))
    single = next(iter(steps)) if len(steps) == 1 else None
    return Side(
        letter=letter_of(position),
        name=name,
        rank=None if rank is None else rank[1],
        steps=0 if run is None else run.step_count,
        step=report.summary.step if run is None else single,
        loss=loss,
        grad_norm=norm,
        parameters=parameters,
        report=report,
    )


def _of_step(row: ParameterRow, recording: Recording) -> SideParameter:
    gradient = row.grad
    return SideParameter(
        name=row.name,
        module=row.module,
        shape=Shape(dims=row.shape, dtype=row.dtype),
        numel=row.numel,
        reach=row.reach,
        reason=row.reason,
        norm=None if gradient is None else gradient.norm,
        weight_norm=row.weight_norm,
        nonfinite=0 if gradient is None else gradient.nonfinite,
        absolute_maximum=None if gradient is None else gradient.absolute_maximum,
        is_shard=recording.parameters[row.index].is_shard,
        series=None,
    )


def _of_run(report: Report, steps: Collection[int]) -> tuple[SideParameter, ...]:
    series, reaches = _series(report.recording, steps)
    return tuple(
        _of_series(row, report.recording, series.get(row.index, Series()), reaches.get(row.index))
        for row in report.parameters
    )


def _series(
    recording: Recording, steps: Collection[int]
) -> tuple[Mapping[int, Series], Mapping[int, Reach]]:
    """Return the states of each parameter in the steps, and its best one."""
    table = norms_of(recording)
    found: dict[int, Series] = {}
    codes: dict[int, int] = {}
    nothing = array("q")
    wanted = frozenset(steps)
    for measured, rows in table.blocks():
        count = len(measured)
        joined: dict[int, array[int]] = {}
        every = table.steps[rows.start : rows.stop : count]
        chosen = [place for place, step in enumerate(every) if step in wanted]
        if not chosen:
            continue
        for place, parameter in enumerate(measured, rows.start):
            own = slice(place, rows.stop, count)
            before = found.get(parameter) or Series(steps=nothing)
            if id(before.steps) not in joined:
                joined[id(before.steps)] = before.steps + array("q", _chosen(every, chosen))
            series = found[parameter] = replace(before, steps=joined[id(before.steps)])
            series.norms.extend(_chosen(table.gradients[own], chosen))
            series.weights.extend(_chosen(table.weights[own], chosen))
            # The order is: the best first.
            best = min(_chosen(table.reaches[own], chosen))
            codes[parameter] = min(best, codes.get(parameter, best))
    return found, {parameter: REACHES[code] for parameter, code in codes.items()}


def _chosen(column: Sequence[Cell], places: Sequence[int]) -> Sequence[Cell]:
    # A whole column stays an array, which is copied in C.
    return column if len(places) == len(column) else [column[place] for place in places]


def _of_series(
    row: ParameterRow, recording: Recording, series: Series, reach: Reach | None
) -> SideParameter:
    known = list(measured_in(series.norms))
    finite = known if isfinite(sum(known)) else list(filter(isfinite, known))
    return SideParameter(
        name=row.name,
        module=row.module,
        shape=Shape(dims=row.shape, dtype=row.dtype),
        numel=row.numel,
        reach=reach or ("unknown" if row.requires_grad else "frozen"),
        reason=None if known else row.reason,
        norm=_median(finite, len(known)),
        weight_norm=next((one for one in series.weights[-1:] if one != NOT_MEASURED), None),
        nonfinite=len(known) - len(finite),
        absolute_maximum=None,
        is_shard=recording.parameters[row.index].is_shard,
        series=series,
    )


def _median(finite: Sequence[float], count: int) -> float | None:
    """Return the median of so many numbers; NaN if most are not finite, None without any."""
    if not count:
        return None
    return median(finite) if 2 * len(finite) > count else nan
