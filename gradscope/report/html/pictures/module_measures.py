"""What is measured of modules, and what it means where there is no number."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.layers import total_norm
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow, ParameterRow
from gradscope.report.html.module_places import ModulePlaces

ModuleState = Literal["number", "broken", "zero", "none", "frozen", "empty"]
"""`none`: its parameters got no gradient; `empty`: there is nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleMeasures:
    """The numbers of one module; None where there is none."""

    norm: float | None
    """Of the gradients of all its parameters."""
    rms: float | None
    """Of an element of these gradients."""
    to_weight: float | None
    """Their norm over that of the parameters."""
    output: float | None
    """Of the gradients at the outputs of all its calls."""
    gain: float | None
    """What backward through a call does to a norm: of several calls what is farthest from 1."""
    absence: ModuleState
    """What it means that there is no gradient of parameters."""


def module_measures(report: Report) -> list[ModuleMeasures]:
    """Return the numbers of each module of a report."""
    reached = _reached_elements(report)
    reaches = _reaches(report)
    return [
        _measures(row, reached.get(row.index, 0), reaches.get(row.index, frozenset()))
        for row in report.modules
    ]


def state_of(value: float | None, absence: ModuleState = "empty") -> ModuleState:
    """Return what a number is; `absence` where there is none."""
    if value is None:
        return absence
    if not math.isfinite(value):
        return "broken"
    return "zero" if value == 0.0 else "number"


def _measures(row: ModuleRow, reached: int, reaches: frozenset[str]) -> ModuleMeasures:
    norm, weight = row.grad_norm, row.weight_norm
    return ModuleMeasures(
        norm=norm,
        rms=None if norm is None or not reached else norm / math.sqrt(reached),
        to_weight=None if norm is None or not weight else norm / weight,
        output=total_norm(
            call.output_grad_norm for call in row.calls if call.output_grad_norm is not None
        ),
        gain=_farthest(call.gain for call in row.calls),
        absence=_absence(row, reaches),
    )


def _absence(row: ModuleRow, reaches: frozenset[str]) -> ModuleState:
    if not row.parameters:
        return "empty"
    if not row.trainable_parameters:
        return "frozen"
    return "none" if "none" in reaches else "empty"


def _farthest(gains: Iterable[float | None]) -> float | None:
    """Return the gain farthest from 1: what is broken before all, then nothing at all."""
    found = [gain for gain in gains if gain is not None]
    return max(found, key=_distance, default=None)


def _distance(gain: float) -> float:
    if not math.isfinite(gain):
        return math.inf
    return abs(math.log10(gain)) if gain else math.inf


def _reached_elements(report: Report) -> Mapping[int, int]:
    """Return, by module, how many elements have a gradient in it and below it."""
    places, found = ModulePlaces(report), dict[int, int]()
    for parameter in report.parameters:
        if parameter.grad is not None:
            for module in _holders(parameter, places):
                found[module] = found.get(module, 0) + parameter.numel
    return found


def _reaches(report: Report) -> Mapping[int, frozenset[str]]:
    """Return, by module, what backward left in the parameters in it and below it."""
    places, found = ModulePlaces(report), dict[int, set[str]]()
    for parameter in report.parameters:
        for module in _holders(parameter, places):
            found.setdefault(module, set()).add(parameter.reach)
    return {module: frozenset(reaches) for module, reaches in found.items()}


def _holders(parameter: ParameterRow, places: ModulePlaces) -> frozenset[int]:
    """Return the modules that hold a parameter under any of its names."""
    owners = [
        parameter.module,
        *(alias.rpartition(".")[0] for alias in parameter.aliases),
    ]
    return frozenset(module for owner in owners for module in places.above(places.of(owner)))
