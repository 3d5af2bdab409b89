"""The metrics of a running training: when they are read, and how they are sent to trackers."""

import os
import random
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import field
from functools import partial
from pathlib import Path
from time import monotonic

from gradscope.analysis.clipping.arithmetic import coefficient
from gradscope.analysis.norms import total_norm
from gradscope.analysis.view import shown_site
from gradscope.errors import GradscopeError
from gradscope.export.trackers import Sink, make_sink
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    ClipEvent,
    ClipNormEvent,
    ClipValueEvent,
    Event,
    StepEvent,
    event_of,
)
from gradscope.recording.finding import Finding
from gradscope.recording.growing import GrowingRecording, Growth
from gradscope.recording.records import ModuleRecord, ParameterRecord
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings

KINDS = ("step", "clip-norm", "clip-value")
"""Kinds of events that are read."""

LAYERS = 32
"""Maximum number of layers with a metric of their own."""

GLOBAL_NORM, LOSS, RATE = "grad_norm/global", "gradscope/loss", "gradscope/learning_rate"
FINDINGS = "gradscope/findings"


_SHARE = 0.02
"""Maximum share of the time for the turns."""


_BETWEEN_READS, _BETWEEN_JUDGEMENTS = 0.5, 10.0
"""Minimum number of seconds between two reads of the recording, and between two judgements."""


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


class Pace:
    """Says when something is due again, by a time between turns and a share of the time.

    Args:
        between: Minimum number of seconds from the end of one turn to the next.
        share: Maximum share of the time that the turns take together.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, between: float, share: float = _SHARE, clock: Callable[[], float] = monotonic
    ) -> None:
        self._between, self._share, self._clock = between, share, clock
        self._began, self._next, self._took = 0.0, 0.0, 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for a turn."""
        return self._clock() >= self._next

    @property
    def last_took(self) -> float:
        """Seconds that the last turn took."""
        return self._took

    def postpone(self) -> None:
        """Postpone the next turn, as after a turn that takes no time."""
        self._next = self._clock() + self._between

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        now = self._clock()
        self._took = now - self._began
        self._next = now + max(self._between, self._took / self._share)


class MetricsLog:
    """Sends what a recording gains to trackers; its own errors end it, and nothing else.

    The trackers are opened after the first step: by then, the script has begun its own run.

    Args:
        path: File of the recording.
        names: Names of trackers, as `check_log` accepts them.
        settings: Settings of the rules.
        tell: Called with the reason why logging has ended early.
    """

    def __init__(
        self, path: Path, names: Sequence[str], settings: Settings, tell: Callable[[str], None]
    ) -> None:
        self._path, self._names, self._settings, self._tell = path, tuple(names), settings, tell
        # A process that is forked from the script has a copy of this object, and must not log.
        self._process, self._turn = os.getpid(), threading.Lock()
        self._metrics = LiveMetrics(path)
        self._reads, self._judgements = Pace(_BETWEEN_READS), Pace(_BETWEEN_JUDGEMENTS)
        self._judgements.postpone()
        self._sinks: dict[str, Sink] = {}
        self._is_open = False
        self._told: set[str] = set()
        self._step = 0
        self._is_on = bool(names)

    def update(self) -> None:
        """Send the metrics of new steps, if it is time for that."""
        if not (self._is_on and self._reads.is_due) or os.getpid() != self._process:
            return
        # A step of another thread must not wait.
        if self._turn.acquire(blocking=False):
            try:
                with self._reads:
                    self._attempt(self._send)
            finally:
                self._turn.release()

    def close(self) -> None:
        """Send the rest and close the trackers. The recording has ended. Further calls do nothing.

        Nothing is sent of a recording without a step.
        """
        if not self._is_on or os.getpid() != self._process:
            return
        if self._path.exists():
            self._attempt(lambda: self._send(is_last=True))
        self._attempt(self._close)
        self._is_on = False

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            with _unnoticed():
                act()
        except Exception as error:  # noqa: BLE001 - it must not end the script
            self._is_on = False
            self._fail("metrics", error)

    def _fail(self, name: str, error: Exception) -> None:
        text = error.what if isinstance(error, GradscopeError) else str(error)
        self._tell(f"logging to {name} stopped: {type(error).__name__}: {text}")

    def _each(self, act: Callable[[Sink], None]) -> None:
        """Call a function for each tracker; one that fails is left out from then on."""
        # A copy: trackers that fail are removed within the loop.
        for name, sink in list(self._sinks.items()):
            try:
                act(sink)
            except Exception as error:  # noqa: BLE001 - it must not end the script
                del self._sinks[name]
                self._fail(name, error)

    def _open(self) -> None:
        for name in self._names:
            try:
                self._sinks[name] = make_sink(name)
            except Exception as error:  # noqa: BLE001 - it must not end the script
                self._fail(name, error)

    def _send(self, *, is_last: bool = False) -> None:
        metrics = self._metrics.read()
        if metrics and not self._is_open:
            self._is_open = True
            self._open()
        for one in metrics:
            self._step = one.step
            self._each(partial(_log, metrics=one))
        if self._sinks and (is_last or self._judgements.is_due):
            with self._judgements:
                self._judge()

    def _judge(self) -> None:
        recording = load_recording(self._path)
        found = judge(recording, self._settings).findings
        self._each(lambda sink: sink.log({FINDINGS: float(len(found))}, self._step))
        for finding in found:
            if finding.fingerprint not in self._told:
                self._told.add(finding.fingerprint)
                self._alert(finding, *alert_texts(finding, recording.target.root))

    def _alert(self, finding: Finding, title: str, text: str) -> None:
        self._each(lambda sink: sink.alert(finding, title, text))

    def _close(self) -> None:
        self._each(lambda sink: sink.close())


def _log(sink: Sink, metrics: StepMetrics) -> None:
    sink.log(metrics.values, metrics.step)


def alert_texts(finding: Finding, root: str) -> tuple[str, str]:
    """Return the title and the text of an alert."""
    text = [finding.message, shown_site(finding.location, root), f"help: {finding.remedy}"]
    return f"{finding.rule} {finding.name}", "\n".join(filter(None, text))


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Restore Python's random state after the block, and keep its output off stdout."""
    # Trackers may draw ids from Python's generator, which the script may have seeded.
    state = random.getstate()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        random.setstate(state)
