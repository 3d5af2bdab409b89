"""Shares of parameters and modules in the global norm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Self

from gradscope.analysis.norms import norm_of_norms
from gradscope.recording.records import Recording

Norms = Mapping[int, float]
"""By parameter, of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What a parameter, or a module with all below it, adds to the global norm."""

    name: str
    share: float
    """Mean share of the squared norm, or of the power that the norm type uses, over the steps."""
    largest: float
    """Share in the step in which it is largest."""
    before: float
    """Median of its own norm before clipping."""
    after: float | None
    """Mean share after the clip; None if unknown."""
    leads: float
    """Share of the steps in which none has a larger share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """Shares in the global norm, the largest first."""

    parameters: tuple[Contribution, ...]
    modules: tuple[Contribution, ...]
    """Contributions by module below the model; each item of a module list counts separately."""
    norm_type: float
    """Type of the norm whose power is divided."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        before: Sequence[Norms],
        after: Sequence[Norms],
        norm_type: float = 2.0,
    ) -> Self:
        """Return that of some steps.

        Args:
            recording: That of the parameters.
            before: By step: norms of the type that clipping goes by.
            after: The same after the clip; fewer where that is not known of all.
            norm_type: The type.
        """
        names = {record.index: record.name for record in recording.parameters}
        roots = _roots(recording)
        parts = {index: _part(name, roots) for index, name in names.items()}
        finite = [
            step for step in before if all(map(math.isfinite, step.values())) and any(step.values())
        ]
        left = [step for step in after if all(map(math.isfinite, step.values()))]
        return cls(
            parameters=_contributions(names, finite, left, norm_type),
            modules=_contributions(parts, finite, left, norm_type),
            norm_type=norm_type,
        )

    @property
    def power(self) -> str:
        """What is shared out, in words."""
        return "squared norm" if self.norm_type == 2 else "norm's power"

    @property
    def leader(self) -> Contribution | None:
        """The parameter that alone makes most of the norm; None where none does."""
        first = next(iter(self.parameters), None)
        return (
            first if first is not None and len(self.parameters) > 1 and first.share > 0.5 else None
        )


def _roots(recording: Recording) -> frozenset[str]:
    """Return the names of models, as they begin the names of their parameters in a run."""
    return frozenset(
        record.path for record in recording.modules if record.parent is None and record.path
    )


def _part(name: str, roots: frozenset[str]) -> str:
    """Return the module that a parameter is counted to: `embedding`, `blocks.3`."""
    root = next((root for root in roots if name.startswith(f"{root}.")), "")
    parts = name[len(root) :].strip(".").split(".")[:-1]
    depth = 2 if len(parts) > 1 and parts[1].isdigit() else 1
    return ".".join([*([root] if root else []), *parts[:depth]])


def _contributions(
    names: Mapping[int, str], before: Sequence[Norms], after: Sequence[Norms], norm_type: float
) -> tuple[Contribution, ...]:
    norms = [_joined(names, step, norm_type) for step in before]
    left = [_joined(names, step, norm_type) for step in after]
    shares = [_shares(step, norm_type) for step in norms]
    found = []
    for name in dict.fromkeys(name for step in norms for name in step):
        own = [step.get(name, 0.0) for step in shares]
        kept = [step[name] for step in left if name in step]
        found.append(
            Contribution(
                name=name,
                share=fmean(own),
                largest=max(own),
                before=median(step[name] for step in norms if name in step),
                after=median(kept) if kept else None,
                leads=fmean(step.get(name, 0.0) == max(step.values()) > 0 for step in shares),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.share))


def _joined(names: Mapping[int, str], step: Norms, norm_type: float) -> dict[str, float]:
    """Return the norm of all parameters that have a name together."""
    together: dict[str, list[float]] = {}
    for index, norm in step.items():
        together.setdefault(names[index], []).append(norm)
    return {name: norm_of_norms(norms, norm_type) for name, norms in together.items()}


def _shares(step: Mapping[str, float], norm_type: float) -> dict[str, float]:
    """Return the share of each of the norm's power; of the largest norm all to the largest."""
    largest = max(step.values(), default=0.0)
    if not largest:
        return dict.fromkeys(step, 0.0)
    if math.isinf(norm_type):
        leaders = sum(norm == largest for norm in step.values())
        return {name: (norm == largest) / leaders for name, norm in step.items()}
    powers = {name: (norm / largest) ** norm_type for name, norm in step.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}
