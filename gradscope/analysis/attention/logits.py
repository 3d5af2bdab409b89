"""The logits of a model, by the operation that took them, over the captured steps."""

from collections.abc import Iterator
from math import inf, isnan

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import LogitKind, LogitRecord
from gradscope.recording.records import Recording, Site


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
    if known is None or point.value > known.value or known.value != known.value:
        return point
    return known
