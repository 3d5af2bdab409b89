"""Routers of mixtures of experts, over the captured steps."""

from collections.abc import Iterator
from math import log
from typing import NamedTuple

from gradscope.analysis.attention.logits import position_of, steps_of
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import RouterRecord
from gradscope.recording.records import ModuleRecord, Recording, Site

_LEVELS = 3
"""Number of modules, from the choice upwards, in which the experts are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterPoint:
    """The choices of a router in one step."""

    step: int
    rows: int
    shares: tuple[float, ...]
    """Share of all choices, by expert."""
    entropy: float
    """Mean entropy of a row's scores, relative to that of equal scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """A choice of experts on one line in one module."""

    module: str
    """Path of the module that contains the experts."""
    site: Site | None
    chosen: int
    """Number of experts chosen per row."""
    points: tuple[RouterPoint, ...]
    list_path: str | None
    """Path of the list of experts; None if one weight holds all of them."""

    @property
    def experts(self) -> int:
        """Number of experts."""
        return len(self.points[-1].shares)

    def shares(self, first: int = 0) -> tuple[float, ...]:
        """Return the share of all choices by expert, over the captured steps from one on."""
        points = self.points[first:]
        rows = sum(point.rows for point in points)
        return tuple(
            sum(point.rows * point.shares[expert] for point in points) / rows
            for expert in range(self.experts)
        )

    @property
    def balance(self) -> float:
        """Entropy of the last step's shares, relative to equal shares: 1 if all are equal."""
        shares = self.points[-1].shares
        return -sum(share * log(share) for share in shares if share > 0) / log(len(shares))


class _Owner(NamedTuple):
    module: str
    list_path: str | None


def routers(recording: Recording) -> tuple[Router, ...]:
    """Return the routers of an inspected step, or those of the captured steps of a run."""
    found: dict[tuple[_Owner, Site | None, int, int], list[RouterPoint]] = {}
    for step, one in steps_of(recording):
        for record in one.evidence_of(RouterRecord):
            owner = _owner(one, record)
            if owner is None:
                continue
            _, site = position_of(one, record.tensor.node)
            points = found.setdefault((owner, site, record.chosen, len(record.shares)), [])
            points.append(
                RouterPoint(
                    step=step, rows=record.rows, shares=record.shares, entropy=record.entropy
                )
            )
    return tuple(
        Router(
            module=owner.module,
            site=site,
            chosen=chosen,
            points=tuple(points),
            list_path=owner.list_path,
        )
        for (owner, site, chosen, _), points in found.items()
    )


def _owner(recording: Recording, record: RouterRecord) -> _Owner | None:
    """Return the innermost module around a choice that holds as many experts; None if none does."""
    call = recording.nodes[record.tensor.node].module_call
    if call is None:
        return None
    module: ModuleRecord | None = recording.modules[recording.calls[call].module]
    for _ in range(_LEVELS):
        if module is None or not module.in_model:
            return None
        for count, path in _expert_counts(recording, module):
            if count == len(record.shares):
                return _Owner(module.path, path)
        module = None if module.parent is None else recording.modules[module.parent]
    return None


def _expert_counts(recording: Recording, module: ModuleRecord) -> Iterator[tuple[int, str | None]]:
    """Yield the lengths and paths of module lists in a module, then of weights with that many."""
    children = [one for one in recording.modules if one.parent == module.index]
    for child in children:
        if child.class_name == "ModuleList" or child.path.endswith("experts"):
            yield sum(one.parent == child.index for one in recording.modules), child.path
    own = {module.index, *(child.index for child in children)}
    for parameter in recording.parameters:
        if parameter.module in own and len(parameter.shape.dims) == 3:
            yield parameter.shape.dims[0], None
