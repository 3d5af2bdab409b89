"""What became of each parameter in a run."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isclose

from gradscope.recording.norm_table import NOT_MEASURED, REACHES, norms_of
from gradscope.recording.records import Recording

_ALIVE = REACHES.index("gradient")


@dataclass(slots=True)
class Fate:
    """What became of a parameter."""

    last_alive: int = -1
    """Last step with a gradient other than zero; -1 if there is none."""
    first_norm: float | None = None
    """Norm of the weights at the first step."""
    moved: bool = False
    weighed: int = 0
    """Number of steps whose norm is known."""

    def weigh(self, norm: float) -> None:
        """Add the norm of the weights at one step."""
        self.weighed += 1
        if self.first_norm is None:
            self.first_norm = norm
        self.moved = self.moved or not isclose(norm, self.first_norm, rel_tol=1e-6)


def norms_at_first(recording: Recording, names: Iterable[str]) -> tuple[float | None, ...]:
    """Return the norms of parameters at the first captured backward, None if not known."""
    first = recording.captured_steps[0].recording
    norms = {stat.parameter: stat.weight_norm for stat in first.parameter_stats}
    known = {one.name: norms.get(one.index) for one in first.parameters}
    return tuple(map(known.get, names))


def fates_of(recording: Recording) -> dict[str, Fate]:
    """Return by name what became of the parameters of a run, by all that was measured."""
    found = {record.name: Fate() for record in recording.parameters}
    norms = norms_of(recording)
    rows = zip(norms.parameters, norms.steps, norms.reaches, strict=True)
    alive = {parameter: step for parameter, step, reach in rows if reach == _ALIVE}
    last = dict(zip(norms.parameters, norms.weights, strict=True))
    first = dict(zip(reversed(norms.parameters), reversed(norms.weights), strict=True))
    for record in recording.parameters:
        fate = found[record.name]
        # Models that replace each other in a variable share their names.
        fate.last_alive = max(fate.last_alive, alive.get(record.index, -1))
        for norm in (first.get(record.index), last.get(record.index)):
            if norm is not None and norm != NOT_MEASURED:
                fate.weigh(norm)
    for captured in recording.captured_steps:
        own = captured.recording.parameters
        for stat in captured.recording.parameter_stats:
            fate = found.setdefault(own[stat.parameter].name, Fate())
            if stat.weight_norm is not None:
                fate.weigh(stat.weight_norm)
            if stat.reach == "gradient":
                fate.last_alive = max(fate.last_alive, captured.step)
    return found
