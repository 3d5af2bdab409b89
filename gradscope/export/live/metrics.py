"""The metrics of a running training: norms of the model and of its layers, before clipping."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from gradscope.analysis.clipping.arithmetic import coefficient
from gradscope.analysis.norms import total_norm
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    ClipEvent,
    ClipNormEvent,
    ClipValueEvent,
    Event,
    StepEvent,
    event_of,
)
from gradscope.recording.growing import GrowingRecording, Growth
from gradscope.recording.records import ModuleRecord, ParameterRecord

KINDS = ("step", "clip-norm", "clip-value")
"""Kinds of events that are read."""

LAYERS = 32
"""Maximum number of layers with a metric of their own."""

GLOBAL_NORM, LOSS, RATE = "grad_norm/global", "gradscope/loss", "gradscope/learning_rate"
FINDINGS = "gradscope/findings"


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """The metrics of one step."""

    step: int
    values: Mapping[str, float]
    """By name. What was not measured is left out."""


class LiveMetrics:
    """Reads the metrics of the steps that were recorded since the last read.

    Args:
        path: File of the recording.
    """

    def __init__(self, path: Path) -> None:
        self._growing = GrowingRecording(path, KINDS)
        self._layers = _Layers()

    def read(self) -> list[StepMetrics]:
        """Return the metrics of new steps; the last of them has those of the layers.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        growth = self._growing.read()
        events: defaultdict[int, list[Event]] = defaultdict(list)
        for record in growth.events:
            events[record.step].append(event_of(record))
        self._layers.add(growth, {step: _factor(found) for step, found in events.items()})
        metrics = [
            StepMetrics(step.index, _of_step(step.loss, events[step.index]))
            for step in growth.steps
            if step.optimizer is not None
        ]
        if metrics:
            # Only the last norm of each parameter is read: earlier steps have none for layers.
            last = metrics[-1]
            metrics[-1] = StepMetrics(last.step, {**last.values, **self._layers.norms()})
        return metrics


def _of_step(loss: float | None, events: Iterable[Event]) -> dict[str, float]:
    values = {LOSS: loss, GLOBAL_NORM: None, RATE: None}
    for event in events:
        match event:
            case ClipEvent() if _sees_all(event, events):
                values[GLOBAL_NORM] = event.norm
            case StepEvent():
                values[RATE] = event.lr
                if values[GLOBAL_NORM] is None:
                    values[GLOBAL_NORM] = event.norm
    return {name: value for name, value in values.items() if value is not None}


def _sees_all(clip: ClipEvent, events: Iterable[Event]) -> bool:
    """Return whether a clip takes all gradients of the step, without the scale of a scaler."""
    step = next((event for event in events if isinstance(event, StepEvent)), None)
    return step is not None and not clip.scaled and clip.fresh >= step.with_gradient


def _factor(events: list[Event]) -> float:
    """Return what the clips of a step multiplied all of its gradients by."""
    factor = 1.0
    for event in events:
        if not isinstance(event, ClipEvent) or not event.norm or not _sees_all(event, events):
            continue
        if isinstance(event, ClipNormEvent) and event.max_norm:
            factor *= coefficient(event.max_norm, event.norm)
        elif isinstance(event, ClipValueEvent) and event.norm_after is not None:
            factor *= event.norm_after / event.norm
    # A factor of zero, or NaN, cannot be divided out.
    return factor if 0 < factor < 1 else 1.0


@dataclass(slots=True)
class _Layers:
    """The layers of the model, and the last norm of each of their parameters."""

    modules: list[ModuleRecord] = field(default_factory=list)
    parameters: list[ParameterRecord] = field(default_factory=list)
    last: dict[int, float | None] = field(default_factory=dict)
    of_parameters: dict[int, str] = field(default_factory=dict)
    """By parameter, the name of its layer."""

    def add(self, growth: Growth, factors: Mapping[int, float]) -> None:
        """Take in new modules, parameters and norms."""
        if growth.modules or growth.parameters:
            self.modules += growth.modules
            self.parameters += growth.parameters
            self.of_parameters = layers_of(self.modules, self.parameters)
        for parameter, norm in growth.norms.items():
            factor = factors.get(growth.norm_steps[parameter], 1.0)
            self.last[parameter] = None if norm is None else norm / factor

    def norms(self) -> dict[str, float]:
        """Return the norm of each layer that has gradients."""
        held: defaultdict[str, list[float]] = defaultdict(list)
        for parameter, layer in self.of_parameters.items():
            norm = self.last.get(parameter)
            if norm is not None:
                held[layer].append(norm)
        totals = ((layer, total_norm(norms)) for layer, norms in held.items())
        return {f"grad_norm/{layer}": total for layer, total in totals if total is not None}


def layers_of(
    modules: list[ModuleRecord], parameters: list[ParameterRecord], most: int = LAYERS
) -> dict[int, str]:
    """Return, by parameter, the name of the layer that it counts for.

    The model is divided into its children, these into theirs, and so on, as long as there are no
    more than `most`. With one more level of a model of twelve blocks, its layers are the blocks.
    """
    paths = {one.index: _path(one.module, modules) for one in parameters}
    found: dict[int, int] = {}
    for depth in range(max(map(len, paths.values()), default=0)):
        # The first division is kept, however many layers it has.
        layers = {index: path[min(depth, len(path) - 1)] for index, path in paths.items()}
        if found and len(set(layers.values())) > most:
            break
        found = layers
    names = {module: _name(modules[module]) for module in set(found.values())}
    return {index: names[module] for index, module in found.items()}


def _path(module: int | None, modules: list[ModuleRecord]) -> list[int]:
    """Return a module and those that hold it, the outermost first."""
    path: list[int] = []
    while module is not None:
        path.append(module)
        module = modules[module].parent
    return path[::-1]


def _name(module: ModuleRecord) -> str:
    return module.path or module.class_name
