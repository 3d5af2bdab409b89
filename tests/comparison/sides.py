"""Recordings made by hand, of one step and of runs: what they hold is chosen, number by number."""

import math
from dataclasses import dataclass, replace

from gradscope.comparison.comparison import compare
from gradscope.comparison.tolerance import Tolerance
from gradscope.recording.finding import Finding, Verdict
from gradscope.recording.norm_table import NOT_MEASURED, NormTable
from gradscope.recording.records import (
    EventRecord,
    GradientStat,
    ModuleRecord,
    ParameterRecord,
    ParameterStat,
    Shape,
    Site,
    StepRecord,
)
from gradscope.session.report import Report
from tests.records import recording as recording_of
from tests.records import target

NUMEL = 4
SITE = Site(file="/home/user/project/model.py", line=7, function="forward", source="x = x.detach()")


@dataclass(frozen=True)
class GivenGradient:
    """What a parameter of a step is to have."""

    norm: float | None = 1.0
    weight: float = 10.0
    reach: str = "gradient"
    nonfinite: int = 0
    dims: tuple[int, ...] = (2, 2)
    dtype: str = "float32"
    aliases: tuple[str, ...] = ()
    is_shard: bool = False


def parameter(index, name, given=None, modules=None):
    """A record; `modules` gathers the paths of those that own parameters."""
    given = given or GivenGradient()
    owner = name.rpartition(".")[0]
    modules = {"": 0} if modules is None else modules
    return ParameterRecord(
        index=index,
        name=name,
        aliases=given.aliases,
        module=modules.setdefault(owner, len(modules)),
        shape=Shape(dims=given.dims, dtype=given.dtype),
        device="cpu",
        numel=math.prod(given.dims),
        requires_grad=given.reach != "frozen",
        optimizer_group=0,
        is_shard=given.is_shard,
    )


def _structure(parameters):
    modules = {"": 0}
    records = tuple(
        parameter(position, name, given, modules)
        for position, (name, given) in enumerate(parameters.items())
    )
    owners = tuple(
        ModuleRecord(
            index=index, path=path, aliases=(), class_name="Linear",
            parent=0 if index else None, in_model=True, training=True,
        )
        for path, index in modules.items()
    )  # fmt: skip
    return records, owners


def recording(parameters, *, steps=(), stats=(), events=(), **changes):
    """A recording of parameters, by their names."""
    records, owners = _structure(parameters)
    values = {
        "target": target(batch="float32[8, 2]", loss="loss_fn(output)", seed=0),
        "parameters": records,
        "modules": owners,
        "steps": tuple(steps),
        "events": tuple(events),
        "parameter_stats": stats,
    }
    return recording_of(**(values | changes))


def of_step(parameters, *, loss=1.0, **changes):
    """A recording of one judged step, from norms or `GivenGradient`s by parameter's name."""
    given = {
        name: one if isinstance(one, GivenGradient) else GivenGradient(norm=one)
        for name, one in parameters.items()
    }
    stats = tuple(_stat(position, one) for position, one in enumerate(given.values()))
    step = StepRecord(index=0, kind="step", graph=0, loss=loss, optimizer=None)
    return recording(given, steps=(step,), stats=stats, **changes)


def _stat(position, given):
    has_gradient = given.reach in ("gradient", "zero")
    return ParameterStat(
        step=0,
        parameter=position,
        reach=given.reach,
        gradient=_gradient(given) if has_gradient else None,
        reason=None if has_gradient else "nothing came",
        weight_norm=given.weight,
        update_norm=None,
    )


def _gradient(given):
    numel = math.prod(given.dims)
    return GradientStat(
        numel=numel,
        norm=0.0 if given.reach == "zero" else given.norm,
        absolute_maximum=given.norm or 0.0,
        zero_share=0.0,
        nonfinite=given.nonfinite,
        sampled=False,
    )


def of_run(norms, losses, *, weights=10.0, backwards=1, first=0, **changes):
    """A recording of a run.

    Args:
        norms: By parameter, the norm of each step; None where there was no gradient.
        losses: Of each step.
        weights: The norm of every parameter's weights.
        backwards: How many there are to a step; each has its share of the loss.
        first: The number of the first step.
        changes: Of the recording.
    """
    steps, events, rows = [], [], []
    for turn, loss in enumerate(losses):
        step = first + turn
        steps.append(StepRecord(index=step, kind="run", graph=None, loss=loss / backwards,
                                optimizer="SGD(lr=0.1)"))  # fmt: skip
        share = loss / backwards
        events += [_event(step, position, "backward", loss=share) for position in range(backwards)]
        events.append(_event(step, backwards, "step", norm=_total(norms, turn)))
        rows.append([_row(step, position, of[turn], weights) for position, of in
                     enumerate(norms.values())])  # fmt: skip
    given = {name: GivenGradient() for name in norms}
    table = NormTable.of_rows(rows, dict.fromkeys(range(len(norms)), NUMEL))
    values = {"command": "gradscope run train.py"} | changes
    made = recording(given, steps=steps, stats=table, events=events, **values)
    return replace(made, target=replace(made.target, name="train.py", seed=None))


def _event(step, order, kind, **numbers):
    return EventRecord(
        step=step, order=order, kind=kind, seconds=float(step), site=None,
        numbers=tuple(numbers.items()),
    )  # fmt: skip


def _total(norms, turn):
    return math.sqrt(sum((of[turn] or 0.0) ** 2 for of in norms.values()))


def _row(step, position, norm, weight):
    reach = "none" if norm is None else "zero" if norm == 0 else "gradient"
    return (step, position, reach, NOT_MEASURED if norm is None else norm, weight, NOT_MEASURED)


def finding(rule="GS201", severity="error", **changes):
    values = {
        "name": "gradient-cut", "message": "no gradient comes to it", "location": SITE,
        "remedy": "pass it on", "fingerprint": f"print of {rule}",
    }  # fmt: skip
    return Finding(rule=rule, severity=severity, **(values | changes))


def reported(one, *findings):
    """The report of a recording, with what was found in it."""
    return Report.from_recording(one, Verdict(findings=findings, ran=("GS201",)))


def compared(*recordings, tolerance=None, names=None, **options):
    """The comparison of recordings or reports."""
    reports = [one if isinstance(one, Report) else reported(one) for one in recordings]
    names = names or [f"{position}.gradscope" for position in range(len(reports))]
    return compare(list(zip(names, reports, strict=True)), tolerance or Tolerance(), **options)


def changes(comparison, side=1):
    """How each parameter changed, by its name."""
    return {one.name: one.pairs[side].change for one in comparison.parameters if one.pairs[side]}
