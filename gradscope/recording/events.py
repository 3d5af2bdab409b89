"""The events of a run: a class per kind, with the numbers that its events record.

Each number is declared once, with its meaning. mypy refuses a misspelt one where it is read, and a
number of another kind of event.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar, overload

from gradscope.recording.records import EventRecord

Value = TypeVar("Value")
AnyEvent = TypeVar("AnyEvent", bound="Event")


class _Recorded(Generic[Value]):
    """A number of an event. Its name is that of the attribute."""

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, event: None, owner: type) -> "_Recorded[Value]": ...
    @overload
    def __get__(self, event: "Event", owner: type) -> Value: ...
    def __get__(self, event: "Event | None", owner: type) -> "_Recorded[Value] | Value":
        return self if event is None else self._of(event.numbers.get(self.name))

    def _of(self, recorded: float | None) -> Value:
        raise NotImplementedError


class Number(_Recorded[float | None]):
    """A number that may be missing: None if it was not measured."""

    def _of(self, recorded: float | None) -> float | None:
        return recorded


class Count(_Recorded[int]):
    """A count: 0 if it was not recorded."""

    def _of(self, recorded: float | None) -> int:
        return 0 if recorded is None else int(recorded)


class Flag(_Recorded[bool]):
    """A yes or no, recorded as 1.0 or 0.0: no if it was not recorded."""

    def _of(self, recorded: float | None) -> bool:
        return recorded is not None and recorded >= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a run. Kinds that this version does not know have no class of their own."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of records that a class reads."""

    position: int
    """Index of the event in the run."""
    step: int
    kind: str
    seconds: float
    """Seconds since the start of the recording."""
    site: int | None
    optimizer: int | None
    """Index among the `TrainedOptimizer` records; None if it involves no optimizer."""
    subject: str
    numbers: Mapping[str, float] = field(repr=False)
    """All recorded numbers by name, for writers that list them."""


class BackwardStart(Event):
    """A call of backward, whether it succeeded or failed."""

    __slots__ = ()
    again = Flag("whether an earlier backward of the step began at the same node")
    create = Flag("whether it builds a graph of itself (`create_graph`)")
    divided = Number("number that the loss was divided by")
    loss = Number("value of the loss, without the scale of a gradient scaler")
    multiplied = Number("product of the constants above 1 that the loss was multiplied by")
    nodes = Number("nodes of the graph, where they were counted")
    older = Flag("whether the graph reaches back before the step before")
    reduction = Number("whether the loss is a mean (1) or a sum (0)")
    retain = Flag("whether it keeps its graph (`retain_graph`)")
    root = Number("autograd's sequence number of the node that it began at")
    rows = Number("rows of the model's first input")
    scale = Number("scale of a gradient scaler, where it has scaled the loss")
    scaled = Flag("whether a gradient scaler has scaled the loss")
    tokens = Number("elements that the loss was averaged over")


class BackwardEvent(BackwardStart):
    """A backward pass."""

    __slots__ = ()
    kinds = ("backward",)
    added = Count("parameters whose gradient was added to one that waited for a step")
    forward = Flag("whether a repeated step made a forward, of an unknown batch, before it")
    reached = Count("parameters that got a gradient")
    stale = Count("parameters whose gradient was added to one that a step has used")

    @property
    def has_forward(self) -> bool:
        """Whether a forward was observed before it."""
        return self.rows is not None or "forward" in self.numbers

    @property
    def may_reach(self) -> bool:
        """Whether it reached a parameter, or was not counted."""
        return self.numbers.get("reached", 1.0) > 0


class BackwardErrorEvent(BackwardStart):
    """A backward that raised an exception."""

    __slots__ = ()
    kinds = ("backward-error",)
    freed = Flag("whether the graph had been freed")
    in_place = Flag("whether a saved tensor had been modified in place")


class CarriedEvent(Event):
    """Gradient history that is carried from step to step."""

    __slots__ = ()
    kinds = ("carried",)
    collected = Flag("whether tensors are collected in a container")
    repeated = Flag("whether it happens in every step")
    sum = Flag("whether a sum is carried on")


class KeptEvent(Event):
    """Gradient history that a variable keeps, of which no backward makes use."""

    __slots__ = ()
    kinds = ("kept",)
    collected = Flag("whether tensors are collected in a container")
    nodes = Count("operations of earlier steps that are kept")
    nodes_before = Count("the same when they were counted for the first time")
    repeated = Flag("whether it happens in every step")
    steps = Count("steps since that first count")
    sum = Flag("whether a sum is carried on")


class ClipEvent(Event):
    """A call of a function that clips gradients."""

    __slots__ = ()
    empty = Count("parameters without a gradient")
    exhausted = Flag("whether it was given an iterator that was used up")
    fresh = Count("parameters with a gradient that no step has used")
    norm = Number("norm of all gradients before the clip")
    parameters = Count("parameters that it was given")
    scaled = Flag("whether the gradients still carry a scaler's scale")
    scope = Number("index of the set of parameters that it was given")
    spent = Count("parameters whose gradient a step has used")

    @property
    def limit(self) -> float | None:
        """Largest norm, or largest magnitude of an element; None if unknown."""
        return None


class ClipNormEvent(ClipEvent):
    """A clip by the norm of all gradients."""

    __slots__ = ()
    kinds = ("clip-norm",)
    max_norm = Number("largest norm allowed")
    norm_type = Number("order of the norm, 2 where it is not recorded")

    @property
    def limit(self) -> float | None:
        """Largest norm allowed; None if unknown."""
        return self.max_norm


class ClipValueEvent(ClipEvent):
    """A clip of single elements."""

    __slots__ = ()
    kinds = ("clip-value",)
    clip_value = Number("largest magnitude of an element allowed")
    cosine = Number("cosine between all gradients before and after the clip")
    norm_after = Number("norm of all gradients after the clip")

    @property
    def limit(self) -> float | None:
        """Largest magnitude of an element allowed; None if unknown."""
        return self.clip_value


class EpochEvent(Event):
    """The start of an iteration over a data loader."""

    __slots__ = ()
    kinds = ("epoch",)
    batches = Number("batches of the loader")


class GradEvent(Event):
    """A call of `autograd.grad`."""

    __slots__ = ()
    kinds = ("grad",)
    create = Flag("whether it builds a graph of itself (`create_graph`)")
    inputs = Count("tensors that gradients were asked for")


class GradErrorEvent(Event):
    """A call of `autograd.grad` that raised an exception."""

    __slots__ = ()
    kinds = ("grad-error",)
    freed = Flag("whether the graph had been freed")
    in_place = Flag("whether a saved tensor had been modified in place")


class ModeEvent(Event):
    """A change between train and eval mode."""

    __slots__ = ()
    kinds = ("mode",)
    batchnorm = Count("batch-norm layers in eval mode")
    dropout = Count("dropout layers in eval mode")
    eval = Flag("whether the model is in eval mode")


class ScalerStepEvent(Event):
    """A call of a gradient scaler's `step`."""

    __slots__ = ()
    kinds = ("scaler-step",)
    found_inf = Flag("whether a gradient was not finite")
    skipped = Flag("whether the step was skipped")


class ScalerUpdateEvent(Event):
    """A call of a gradient scaler's `update`."""

    __slots__ = ()
    kinds = ("scaler-update",)
    scale_after = Number("scale after the update")
    scale_before = Number("scale before the update")


class SchedulerEvent(Event):
    """A step of a learning rate scheduler."""

    __slots__ = ()
    kinds = ("scheduler",)
    lr_after = Number("learning rate after the call")
    lr_before = Number("learning rate before the call")


class StepEvent(Event):
    """A step of an optimizer, or of a script that changes the weights itself."""

    __slots__ = ()
    kinds = ("step",)
    backwards = Number("backward passes whose gradients the step uses")
    clipped = Count("parameters whose gradient was clipped")
    evaluations = Number("evaluations of the closure since the optimizer was made")
    fresh = Count("parameters with a gradient that no step had used")
    lr = Number("learning rate of the first group")
    manual = Flag("whether the script changed the weights itself")
    none = Count("parameters without a gradient")
    nonfinite = Count("parameters whose gradient is not finite")
    norm = Number("norm of all gradients")
    parameters = Count("parameters of the optimizer")
    stale = Count("parameters whose gradient an earlier step had used")
    with_gradient = Count("parameters with a gradient")
    written = Count("parameters whose gradient the script itself has written to")

    @property
    def knows_nonfinite(self) -> bool:
        """Whether non-finite gradients were counted."""
        return "nonfinite" in self.numbers


class UnscaleEvent(Event):
    """A call of a gradient scaler's `unscale_`."""

    __slots__ = ()
    kinds = ("unscale",)
    scale = Number("scale that gradients were divided by")


class ZeroEvent(Event):
    """A call that zeroes gradients."""

    __slots__ = ()
    kinds = ("zero",)
    parameters = Count("parameters whose gradients were zeroed")
    set_to_none = Flag("whether gradients were set to None")
    unspent = Count("parameters whose gradient no step had used")


EVENT_CLASSES: tuple[type[Event], ...] = (
    BackwardEvent,
    BackwardErrorEvent,
    CarriedEvent,
    KeptEvent,
    ClipNormEvent,
    ClipValueEvent,
    EpochEvent,
    GradEvent,
    GradErrorEvent,
    ModeEvent,
    ScalerStepEvent,
    ScalerUpdateEvent,
    SchedulerEvent,
    StepEvent,
    UnscaleEvent,
    ZeroEvent,
)
"""Every kind of event."""

_BY_KIND = {kind: one for one in EVENT_CLASSES for kind in one.kinds}


def meanings(kind: str) -> Mapping[str, str]:
    """Return what each number of a kind of event means, by name."""
    return {
        name: declared.meaning
        for base in _BY_KIND[kind].__mro__
        for name, declared in vars(base).items()
        if isinstance(declared, _Recorded)
    }


def event_of(record: EventRecord, position: int = 0) -> Event:
    """Return the event of a record, as one of its kind."""
    return _BY_KIND.get(record.kind, Event)(
        position=position,
        step=record.step,
        kind=record.kind,
        seconds=record.seconds,
        site=record.site,
        optimizer=record.optimizer,
        subject=record.subject,
        numbers=dict(record.numbers),
    )


def only(kind: type[AnyEvent], events: Iterable[Event]) -> Iterator[AnyEvent]:
    """Yield the events of a kind."""
    return (event for event in events if isinstance(event, kind))
