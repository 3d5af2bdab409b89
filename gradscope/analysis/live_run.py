"""A training run as far as it has gone, in bounded memory."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from gradscope.analysis.assembly import parameter_rows
from gradscope.analysis.columns import Cells, Course, Extreme
from gradscope.analysis.folding import FoldedModule
from gradscope.analysis.layers import largest, outline
from gradscope.analysis.losses import loss_of
from gradscope.analysis.norms import total_norm
from gradscope.analysis.recording_index import first_step
from gradscope.analysis.rows import ModuleRow, module_rows, parameters_held
from gradscope.analysis.run_optimizers import first_alike
from gradscope.analysis.training_run import CurveKind
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    BackwardEvent,
    ClipEvent,
    ClipNormEvent,
    ClipValueEvent,
    Event,
    ScalerStepEvent,
    ScalerUpdateEvent,
    StepEvent,
    event_of,
    only,
)
from gradscope.recording.growing import Growth
from gradscope.recording.meta import Header
from gradscope.recording.records import (
    ModuleRecord,
    ParameterRecord,
    Recording,
    StepRecord,
)

_MOST = 256
"""Maximum number of buckets: a longer series puts neighbours into one."""

_Bucket = tuple[float, int]
"""A representative of neighbouring numbers, and their count."""


class Series:
    """A number, step by step.

    Args:
        of_several: What stands for neighbouring steps where there are many.
    """

    def __init__(self, of_several: Literal["mean", "largest"]) -> None:
        self._join: Callable[[_Bucket, _Bucket], _Bucket]
        self._join = _mean if of_several == "mean" else _largest
        self._buckets: list[_Bucket] = []
        self._size = 1
        """Current number of values in a bucket."""
        self._ends: tuple[float, ...] = ()
        self._lowest: Extreme | None = None
        self._highest: Extreme | None = None
        self._nonfinite = 0
        self._first_nonfinite: int | None = None

    @property
    def last(self) -> float | None:
        """Latest number; None without any."""
        return self._ends[-1] if self._ends else None

    def add(self, step: int, value: float | None) -> None:
        """Take the number of a further step; None is nothing measured."""
        if value is None:
            return
        self._ends = (*self._ends[:1], value)
        self._note(step, value)
        if self._buckets and self._buckets[-1][1] < self._size:
            self._buckets[-1] = self._join(self._buckets[-1], (value, 1))
            return
        if len(self._buckets) == _MOST:
            # The maximum is even: no bucket is left without a partner.
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [self._join(*pair) for pair in pairs]
            self._size *= 2
        self._buckets.append((value, 1))

    def _note(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            self._nonfinite += 1
            if self._first_nonfinite is None:
                self._first_nonfinite = step
            return
        if self._lowest is None or value < self._lowest.value:
            self._lowest = Extreme(step=step, value=value)
        if self._highest is None or value > self._highest.value:
            self._highest = Extreme(step=step, value=value)

    def course(self, width: int) -> Course:
        """Return the series in at most this many columns."""
        return Course(
            cells=self._cells(width),
            ends=self._ends,
            lowest=self._lowest,
            highest=self._highest,
            nonfinite=self._nonfinite,
            first_nonfinite=self._first_nonfinite,
        )

    def _cells(self, width: int) -> Cells:
        count = min(width, len(self._buckets))
        columns: dict[int, _Bucket] = {}
        for turn, bucket in enumerate(self._buckets):
            position = turn * count // len(self._buckets)
            columns[position] = (
                self._join(columns[position], bucket) if position in columns else bucket
            )
        return tuple(value for value, _ in columns.values())


def _mean(one: _Bucket, other: _Bucket) -> _Bucket:
    count = one[1] + other[1]
    # The weights are divided first: a large loss times its count overflows.
    return one[0] * (one[1] / count) + other[0] * (other[1] / count), count


def _largest(one: _Bucket, other: _Bucket) -> _Bucket:
    # A NaN is neither larger nor smaller, and stays.
    has_first = math.isnan(one[0]) or one[0] >= other[0]
    return one[0] if has_first else other[0], one[1] + other[1]


KINDS = ("backward", "step", "clip-norm", "clip-value", "scaler-step", "scaler-update")
"""Kinds of events that are read."""


class Track:
    """The steps of an optimizer, or of several that one line made."""

    def __init__(self) -> None:
        self.name = self.title = ""
        """Variable that holds it, and its call: `AdamW(lr=0.001)`."""
        self.steps = 0
        self.curves: dict[CurveKind, Series] = {
            "loss": Series("mean"),
            "norm": Series("largest"),
            "rate": Series("largest"),
        }
        self.before_clip = Series("largest")
        """Norms that clipping measured."""
        self.clips = 0
        """Steps whose gradients were clipped."""
        self.clipped = 0
        """Number of clips whose norm was above the limit."""
        self.limit: float | None = None
        """Limit of the last clip: largest norm, or largest element."""
        self.is_by_value = False
        """Whether that clip limited elements."""
        self.scale: float | None = None
        """Factor by which a gradient scaler multiplies the loss."""
        self.skipped = 0
        """Steps that a gradient scaler skipped."""

    def add(self, step: StepRecord, events: Iterable[Event]) -> None:
        """Add a step with the events before it."""
        self.steps += 1
        self.title = step.optimizer or self.title
        events = tuple(events)
        passes = _passes(events)
        # A step's record has the loss of its last backward only.
        loss = loss_of(passes) if len(passes) > 1 else None
        self.curves["loss"].add(step.index, step.loss if loss is None else loss)
        clips = []
        for event in events:
            match event:
                case StepEvent():
                    self.curves["norm"].add(step.index, event.norm)
                    self.curves["rate"].add(step.index, event.lr)
                case ClipEvent():
                    clips.append(event)
                case ScalerStepEvent():
                    self.skipped += event.skipped
                case ScalerUpdateEvent() if event.scale_after is not None:
                    self.scale = event.scale_after
        if clips:
            self._add_clips(step.index, clips)

    def _add_clips(self, step: int, clips: list[ClipEvent]) -> None:
        clip = max(clips, key=_excess)
        self.clips += 1
        self.clipped += _excess(clip) > 1
        self.is_by_value = isinstance(clip, ClipValueEvent)
        self.limit = clip.limit
        self.before_clip.add(step, clip.norm)


def _passes(events: Iterable[Event]) -> list[BackwardEvent]:
    """Return the backward passes of a step, without those of steps that a scaler skipped before."""
    found: list[BackwardEvent] = []
    for event in events:
        if isinstance(event, BackwardEvent):
            found.append(event)
        elif isinstance(event, ScalerStepEvent) and event.skipped:
            found.clear()
    return found


def _excess(clip: ClipEvent) -> float:
    """Return the ratio of a clipped norm to the limit; 0 if unknown, and for single elements."""
    if not isinstance(clip, ClipNormEvent) or clip.norm is None or not clip.max_norm:
        return 0.0
    return clip.norm / clip.max_norm


_KEPT = 128
"""Maximum number of steps with norms: no display is wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLayer:
    """A module, or several that repeat each other, and their gradient norms by step."""

    module: FoldedModule
    level: int
    cells: Cells
    """Cells of the strip; the largest value of several modules."""


class LayerNorms:
    """Reads the last gradient norm of every parameter at intervals."""

    def __init__(self) -> None:
        self._modules: list[ModuleRecord] = []
        self._parameters: list[ParameterRecord] = []
        self._looks: deque[tuple[int, dict[int, float | None]]] = deque(maxlen=_KEPT)
        """By step: norms by parameter."""
        self._rows: tuple[ModuleRow, ...] = ()
        self._held: list[list[int]] = []
        self._outlines: dict[int, list[tuple[FoldedModule, int]]] = {}
        """Outlines by the maximum number of rows."""
        self._cells: deque[dict[int, float | None]] = deque(maxlen=_KEPT)
        """By measured step: norms by module."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps at which norms were read."""
        return tuple(step for step, _ in self._looks)

    def add(self, step: int, growth: Growth) -> None:
        """Add the norms after a step."""
        if growth.modules or growth.parameters:
            self._modules += growth.modules
            self._parameters += growth.parameters
            self._structure(growth.header)
        if growth.norms:
            self._looks.append((step, growth.norms))
            self._cells.append(self._of_modules(growth.norms))

    def rows(self, most: int, width: int) -> list[LiveLayer]:
        """Return a row for each module with parameters, as deep as fits, with its last norms."""
        shown = list(self._cells)[-width:]
        # The row of the whole model may drop out, which makes room for another.
        found = self._outline(most + 1)
        if len(found) > most:
            found = self._outline(most)
        return [
            LiveLayer(
                module=module,
                level=level,
                cells=tuple(largest(one[row.index] for row in module.rows) for one in shown),
            )
            for module, level in found
        ]

    def _outline(self, most: int) -> list[tuple[FoldedModule, int]]:
        found = self._outlines.get(most)
        if found is None:
            found = outline(self._rows, lambda row: (row.own_numel, row.trainable_parameters), most)
            if len(found) > 1 and all(level for _, level in found[1:]):
                # The norm of a whole that is the only one is the global one.
                found = [(module, level - 1) for module, level in found[1:]]
            self._outlines[most] = found
        return found

    def _structure(self, header: Header) -> None:
        alone = _structure_alone(header, self._modules, self._parameters)
        self._rows = module_rows(first_step(alone), parameter_rows(first_step(alone)))
        self._held = parameters_held(alone)
        # What a row is made of may be another now.
        self._outlines.clear()
        self._cells = deque((self._of_modules(norms) for _, norms in self._looks), _KEPT)

    def _of_modules(self, norms: dict[int, float | None]) -> dict[int, float | None]:
        return {
            row.index: total_norm(
                norm
                for position in self._held[row.index]
                if (norm := norms.get(position)) is not None
            )
            for row in self._rows
        }


def _structure_alone(
    header: Header, modules: Iterable[ModuleRecord], parameters: Iterable[ParameterRecord]
) -> Recording:
    """Return a recording of modules and parameters, and nothing that happened."""
    return Recording(
        version=header.version,
        command=header.command,
        environment=header.environment,
        target=header.target,
        parameters=tuple(parameters),
        # There are no sites to index.
        modules=tuple(replace(module, site=None) for module in modules),
        calls=(),
        sites=(),
        nodes=(),
        edges=(),
        steps=(),
        events=(),
        parameter_stats=(),
        tensor_stats=(),
        skipped=(),
    )


_RECENT = 5.0
"""Seconds over which the speed is computed."""


class LiveRun:
    """State of a run, updated by the growth of its recording.

    Args:
        name: Of what is run.
    """

    def __init__(self, name: str) -> None:
        self.name, self.root = name, ""
        self.steps = 0
        """Number of steps of all optimizers."""
        self.last_step = 0
        self._read = -1
        """Last step read, whether an optimizer made one or not."""
        self.seconds = 0.0
        """Seconds from the start of the recording to the last step."""
        self.is_over = False
        """Whether recording has ended."""
        self.tracks: dict[int | None, Track] = {}
        """By optimizer, in the order of their first steps."""
        self.layers = LayerNorms()
        self._passed: deque[tuple[float, int]] = deque()
        """Pairs of a time in seconds and the number of steps made by then."""

    @property
    def speed(self) -> float | None:
        """Steps per second in the last seconds; None if unknown."""
        if not self._passed:
            return None
        (start, before), (end, now) = self._passed[0], self._passed[-1]
        return (now - before) / (end - start) if end > start else None

    def add(self, growth: Growth) -> None:
        """Add the new records."""
        self.root = growth.header.target.root
        self.is_over = growth.header.finished
        events = defaultdict[int, list[Event]](list)
        for record in growth.events:
            events[record.step].append(event_of(record))
        alike = first_alike(growth.optimizers)
        for step in growth.steps:
            before, self._read = self._read, step.index
            if step.optimizer is None:
                continue  # what led to no step
            made = next(only(StepEvent, events[step.index]), None)
            position = None if made is None else made.optimizer
            if position is not None and position < len(alike):
                position = alike[position]
            track = self.tracks.setdefault(position, Track())
            track.add(step, events[step.index])
            # Of many steps since the last read, some may be in summaries only.
            self.steps += step.index - before if self.steps else 1
            self.last_step = step.index
            if made is not None:
                self._pass(made.seconds)
        for position, track in self.tracks.items():
            if position is not None and position < len(growth.optimizers):
                optimizer = growth.optimizers[position]
                track.name = "" if optimizer.name == optimizer.class_name else optimizer.name
        self.layers.add(self.last_step, growth)

    def _pass(self, seconds: float) -> None:
        self.seconds = seconds
        self._passed.append((seconds, self.steps))
        # One time before the window stays: a slow loop may make no two steps in it.
        while len(self._passed) > 2 and self._passed[1][0] < seconds - _RECENT:
            self._passed.popleft()
