"""Whether the gradients of micro-batches add up to the whole batch's.

The micro-batches run under the same weights, and get the random numbers that the whole batch drew:
what is left between the two is how the loss is made.
"""

import math
from dataclasses import dataclass, replace

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradscope.errors import GradscopeError
from gradscope.probes.accumulation_laws import (
    FULL_TOLERANCE,
    LOW_TOLERANCE,
    Count,
    Law,
    find_law,
)
from gradscope.probes.batch_division import Division, divide
from gradscope.probes.equal_draws import EqualDraws, Part
from gradscope.probes.gradient_runs import GradientRun, run_gradients
from gradscope.probes.gradient_sums import GradientSums, Products
from gradscope.probes.scene import Scene
from gradscope.recording.evidence.micro_batch import (
    AccumulatedGradient,
    AccumulationRecord,
    MicroBatchRecord,
    Obstruction,
)
from gradscope.target.structures import named_tensors

_IGNORED = -100
"""The target that torch's losses ignore, if they are not told of another."""


def examine_micro_batches(scene: Scene) -> str | None:
    """Note what accumulating the gradients of micro-batches gives, where that was asked for."""
    if scene.micro_batches is None:
        return "no micro-batches were asked for"
    reason = _examined(scene, scene.micro_batches)
    if reason is not None:
        scene.assembler.skip(f"{scene.micro_batches} micro-batches", reason)
    return reason


def _examined(scene: Scene, number: int) -> str | None:
    try:
        division = divide(scene.target.batch, number)
        trial = _run(scene, division)
    except GradscopeError as error:
        return _told(error)
    if not math.isfinite(trial.total.norm):
        return "the whole batch's gradient is not finite"
    if trial.total.norm == 0.0:
        return "the whole batch's gradient is zero"
    norms = _normalising(scene)
    calm = None
    if trial.law.name == "none" and all(trial.finite) and (norms or trial.unmatched):
        calm = _calm(scene, division, tuple(scene.named.modules) if trial.unmatched else norms)
    _note(scene, trial, norms, calm)
    return None


def _told(error: GradscopeError) -> str:
    return error.what if error.cause is None else f"{error.what} ({error.cause})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The whole batch's run and those of its parts."""

    division: Division
    whole: GradientRun
    parts: tuple[GradientRun, ...]
    """Without gradients."""
    finite: tuple[bool, ...]
    """By part: whether its loss and its gradients are."""
    sums: GradientSums
    products: dict[int, Products]
    """By parameter."""
    total: Products
    law: Law
    draws: int
    unmatched: int


def _run(scene: Scene, division: Division, still: tuple[nn.Module, ...] = ()) -> _Trial:
    """Run the whole batch and its parts.

    Raises:
        GradscopeError: One of them cannot be run.
    """
    draws = EqualDraws()
    whole = run_gradients(scene, scene.target.batch, draws.kept(), still=still)
    sums = GradientSums(whole.gradients)
    parts, finite = list[GradientRun](), list[bool]()
    start = 0
    for batch, size in zip(division.parts, division.sizes, strict=True):
        given = draws.given(Part(start, size, division.rows))
        run = run_gradients(scene, batch, given, still=still)
        is_finite = sums.add(run.gradients)
        finite.append(is_finite and math.isfinite(run.loss))
        parts.append(replace(run, gradients=()))
        start += size
    products = sums.products()
    return _Trial(
        division=division,
        whole=whole,
        parts=tuple(parts),
        finite=tuple(finite),
        sums=sums,
        products=products,
        total=sum(products.values(), Products(0.0, 0.0, 0.0)),
        law=_law(sums, division, whole, parts) if all(finite) else _unknown(len(parts)),
        draws=draws.count,
        unmatched=draws.unmatched + whole.drew_in_python,
    )


def _law(
    sums: GradientSums, division: Division, whole: GradientRun, parts: list[GradientRun]
) -> Law:
    of_parts, of_whole = sums.sample()
    if not of_whole.any() or not of_whole.isfinite().all():
        return _unknown(len(parts))
    return find_law(
        of_parts,
        of_whole,
        _counts(division, [part.graph.totals for part in parts]),
        ([part.loss for part in parts], whole.loss),
        LOW_TOLERANCE if whole.graph.is_low else FULL_TOLERANCE,
    )


def _unknown(parts: int) -> Law:
    return Law(name="none", weights=(math.nan,) * parts, remaining=math.nan)


def _counts(division: Division, totals: list[tuple[float, ...]]) -> list[Count]:
    """Return what the loss's mean may be over."""
    counts = [Count("rows", tuple(float(size) for size in division.sizes))]
    if len({len(total) for total in totals}) == 1:
        counts += [Count("targets", amounts) for amounts in zip(*totals, strict=True)]
    # Of the same batch, so that names and order are the same in every part.
    named = [list(named_tensors(part, "batch")) for part in division.parts]
    for tensors in zip(*named, strict=True):
        name = tensors[0][0]
        values = [tensor.detach() for _, tensor in tensors]
        if not values[0].is_floating_point() and not values[0].is_complex():
            kept = tuple(float((value != _IGNORED).sum()) for value in values)
            counts.append(Count(f"elements of {name} that are not {_IGNORED}", kept))
        filled = tuple(float(value.count_nonzero()) for value in values)
        counts.append(Count(f"elements of {name} that are not 0", filled))
    return counts


def _normalising(scene: Scene) -> tuple[nn.Module, ...]:
    """Return the modules that normalise by statistics of the batch."""
    return tuple(
        module
        for module in scene.named.modules
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    )


def _calm(scene: Scene, division: Division, still: tuple[nn.Module, ...]) -> _Trial | None:
    """Run all of it once more with modules in eval mode, None where that cannot be done."""
    try:
        return _run(scene, division, still)
    except GradscopeError:
        return None


def _obstruction(trial: _Trial, norms: tuple[nn.Module, ...], calm: _Trial | None) -> Obstruction:
    if not all(trial.finite):
        return "non-finite"
    is_calm = calm is not None and calm.law.name != "none"
    fixed = [module for module in norms if module.running_mean is None]
    if norms and (is_calm or fixed):
        return "batch norm"
    if trial.unmatched and (is_calm or calm is None or calm.unmatched):
        return "random numbers"
    return "examples meet"


def _note(scene: Scene, trial: _Trial, norms: tuple[nn.Module, ...], calm: _Trial | None) -> None:
    law, total, division = trial.law, trial.total, trial.division
    number = len(division.parts)
    obstruction = _obstruction(trial, norms, calm) if law.name == "none" else None
    places = {id(module): place for place, module in enumerate(scene.named.modules)}
    scene.assembler.note(
        AccumulationRecord(
            micro_batches=number,
            rows=division.rows,
            repeated=division.repeated,
            loss=trial.whole.loss,
            law=law.name,
            unit=None if law.count is None else law.count.unit,
            obstruction=obstruction,
            modules=tuple(places[id(module)] for module in norms),
            site=_meeting_site(scene, trial) if obstruction == "examples meet" else None,
            apart=None if calm is None else calm.law.name,
            draws=trial.draws,
            unmatched=trial.unmatched,
            scale=total.scale,
            cosine=total.cosine,
            deviation=total.deviation(),
            divided=total.deviation(1 / number),
            remaining=law.remaining,
        )
    )
    amounts = law.count.amounts if law.count else division.sizes
    for place, run in enumerate(trial.parts):
        scene.assembler.note(
            MicroBatchRecord(
                rows=division.sizes[place],
                loss=run.loss,
                is_finite=trial.finite[place],
                count=float(amounts[place]),
                weight=None if law.name == "none" else law.weights[place],
            )
        )
    _note_parameters(scene, trial)


def _note_parameters(scene: Scene, trial: _Trial) -> None:
    remaining = trial.sums.remaining(trial.law.weights)
    for place, one in trial.products.items():
        is_tiny = one.is_tiny(trial.total)
        scene.assembler.note(
            AccumulatedGradient(
                parameter=place,
                norm=one.norm,
                scale=math.nan if is_tiny else one.scale,
                deviation=math.nan if is_tiny else one.deviation(),
                remaining=math.nan if is_tiny else remaining[place],
            )
        )


def _meeting_site(scene: Scene, trial: _Trial) -> int | None:
    """Return the first line whose result has examples along two dimensions."""
    whole, part = trial.whole.graph, trial.parts[0].graph
    known = scene.capture.graph
    if not tuple(known.operations) == whole.operations == part.operations:
        return None
    rows, size = trial.division.rows, trial.division.sizes[0]
    meeting = [
        place
        for place, (one, other) in enumerate(zip(whole.shapes, part.shapes, strict=True))
        if any(_grown(*dims, rows, size) > 1 for dims in zip(one, other, strict=False))
    ]
    # The walk goes from the loss back: the last one is the first of the forward.
    for place in reversed(meeting):
        line = scene.capture.line_of(known.nodes[place])
        if line is not None:
            return scene.assembler.site_of(line)
    return None


def _grown(whole: tuple[int, ...], part: tuple[int, ...], rows: int, size: int) -> int:
    """Return how many dimensions are as many times longer for the whole batch as it is."""
    if len(whole) != len(part):
        return 0
    pairs = zip(whole, part, strict=True)
    return sum(one != other and one * size == other * rows for one, other in pairs)
