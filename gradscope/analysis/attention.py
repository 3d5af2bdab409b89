"""Attention: the logits before softmaxes, the scores in the graph, and routers to experts."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf, isnan, log
from typing import NamedTuple

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import LogitKind, LogitRecord, RouterRecord
from gradscope.recording.records import ModuleRecord, Recording, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitPoint:
    """Logits in one step."""

    step: int
    largest: tuple[float, ...]
    """Largest magnitude of the logits by head, or one number for all."""
    log_normaliser: float
    """Mean log Z of the outputs; NaN for attention."""

    @property
    def value(self) -> float:
        """Followed value: the magnitude of log Z for outputs, otherwise the largest logit."""
        return self.top if isnan(self.log_normaliser) else abs(self.log_normaliser)

    @property
    def top(self) -> float:
        """Largest logit of all heads; NaN if one has a NaN."""
        return self.largest[self.head]

    @property
    def head(self) -> int:
        """First head with a NaN, otherwise the head with the largest logit."""
        return max(range(len(self.largest)), key=lambda head: _rank(self.largest[head]))


def _rank(logit: float) -> float:
    # Comparisons with NaN are false: `max` would pass over the head that broke.
    return inf if isnan(logit) else logit


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitSeries:
    """The logits that one line takes in one module."""

    kind: LogitKind
    module: str
    """Path of the module that was running; empty outside all modules."""
    site: Site | None
    points: tuple[LogitPoint, ...]

    @property
    def head(self) -> int | None:
        """Head with the largest logit of the last step; None where heads are unknown."""
        last = self.points[-1]
        return last.head if len(last.largest) > 1 else None


def logit_series(recording: Recording) -> tuple[LogitSeries, ...]:
    """Return the logits of an inspected step, or those of the captured steps of a run."""
    found: dict[tuple[LogitKind, str, Site | None], dict[int, LogitPoint]] = {}
    for step, one in steps_of(recording):
        for record in one.evidence_of(LogitRecord):
            module, site = position_of(one, record.tensor.node)
            points = found.setdefault((record.kind, module, site), {})
            point = LogitPoint(
                step=step, largest=record.largest, log_normaliser=record.log_normaliser
            )
            points[step] = _larger(points.get(step), point)
    return tuple(
        LogitSeries(kind=kind, module=module, site=site, points=tuple(points.values()))
        for (kind, module, site), points in found.items()
    )


def steps_of(recording: Recording) -> Iterator[tuple[int, Recording]]:
    """Yield the steps that were captured whole: the captured steps of a run, else itself."""
    if any(step.kind == "run" for step in recording.steps):
        yield from ((captured.step, captured.recording) for captured in recording.captured_steps)
    else:
        yield 0, recording


def position_of(recording: Recording, node: int) -> tuple[str, Site | None]:
    """Return the module and the line of an operation."""
    record = recording.nodes[node]
    site = None if record.site is None else recording.sites[record.site]
    if record.module_call is None:
        return "", site
    return recording.modules[recording.calls[record.module_call].module].path, site


def _larger(known: LogitPoint | None, point: LogitPoint) -> LogitPoint:
    """Return the larger of the logits of two calls in one step."""
    if known is None or _rank(point.value) > _rank(known.value):
        return point
    return known


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
        # The limit of x log x at zero is zero, but `log(0)` raises.
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
        # Fused experts are one weight of [experts, inputs, outputs]: three dimensions are the only
        # sign.
        if parameter.module in own and len(parameter.shape.dims) == 3:
            yield parameter.shape.dims[0], None


_FUSED = "ScaledDotProduct"
"""Prefix of the operations that compute a whole attention; their last input are the values."""

_SOFTMAX = frozenset({"SafeSoftmaxBackward0", "SoftmaxBackward0"})

_OF_WEIGHTS = (
    "CloneBackward0",
    "ExpandBackward0",
    "MulBackward0",
    "NativeDropoutBackward0",
    "ToCopyBackward0",
)
"""Operations between the softmax of an attention and its product with the values."""


def without_scores(indexed: RecordingIndex, chain: Sequence[int]) -> Sequence[int]:
    """Return a chain of nodes up to where it enters the queries or keys of an attention.

    If the first layer's input gets no gradient, its values are a path of their own. What queries
    and keys get is small by nature, as they only move the weights of an average.

    Args:
        indexed: The recording.
        chain: Nodes in the order of backward, each of which every gradient of the next one passes.
    """
    for position, (node, following) in enumerate(pairwise(chain)):
        inputs = indexed.inputs(node)
        operation = indexed.recording.nodes[node].operation
        if len(inputs) < 2 or following == inputs[-1] or following not in inputs:
            continue
        is_product = operation == "BmmBackward0" and _is_softmax(indexed, following)
        if operation.startswith(_FUSED) or is_product:
            return chain[: position + 1]
    return chain


def _is_softmax(indexed: RecordingIndex, node: int) -> bool:
    """Return whether an operation is a softmax, also one in another shape or with dropout."""
    return indexed.behind_views(node, _OF_WEIGHTS).operation in _SOFTMAX
