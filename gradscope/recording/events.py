"""The events of a run: a class per kind, with the numbers that its events record.

Each number is declared once, with its meaning. mypy refuses a misspelt one, and a number of another
kind of event, where it is read and where it is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, ParamSpec, TypeVar, dataclass_transform

from gradscope.recording.event_numbers import Count, Flag, Number
from gradscope.recording.records import EventRecord

AnyEvent = TypeVar("AnyEvent", bound="Event")
Names = ParamSpec("Names")
"""The numbers that a kind of event declares, as keyword arguments."""


EVENT_CLASSES: dict[str, "type[Event]"] = {}
"""Every class of events, by the kind of the records that it reads."""


# Declares to mypy that the numbers of a kind are the keyword arguments of its class, for `named`.
@dataclass_transform(kw_only_default=True, frozen_default=True)
class Event:
    """An event of a run. Kinds that this version does not know have no class of their own."""

    __slots__ = ("kind", "numbers", "optimizer", "position", "seconds", "site", "step", "subject")

    def __init_subclass__(cls, kind: str | None = None) -> None:
        """Let the class read the records of a kind."""
        if kind is not None:
            EVENT_CLASSES[kind] = cls

    def __init__(self, record: EventRecord, position: int) -> None:
        self.position: Final = position
        """Index of the event in the run."""
        self.step: Final = record.step
        self.kind: Final = record.kind
        self.seconds: Final = record.seconds
        """Seconds since the start of the recording."""
        self.site: Final = record.site
        self.optimizer: Final = record.optimizer
        """Index among the `TrainedOptimizer` records; None if it involves no optimizer."""
        self.subject: Final = record.subject
        self.numbers: Final[Mapping[str, float]] = dict(record.numbers)
        """All recorded numbers by name, for writers that list them."""


class Observation(Event):
    """An observation of captured steps, not a call of the training loop."""

    # Without it, here and below, each of very many events would have a dict besides its slots.
    __slots__ = ()


class BackwardStart(Event):
    """A call of backward, whether it succeeded or failed."""

    __slots__ = ()
    again: Flag = Flag("whether an earlier backward of the step began at the same node")
    create: Flag = Flag("whether it builds a graph of itself (`create_graph`)")
    divided: Number = Number("number that the loss was divided by")
    loss: Number = Number("value of the loss, without the scale of a gradient scaler")
    multiplied: Number = Number("product of the constants above 1 that the loss was multiplied by")
    nodes: Number = Number("nodes of the graph, where they were counted")
    older: Flag = Flag("whether the graph reaches back before the step before")
    outdated: Flag = Flag("whether earlier passes used numbers of old weights that it uses again")
    reduction: Number = Number("whether the loss is a mean (1) or a sum (0)")
    retain: Flag = Flag("whether it keeps its graph (`retain_graph`)")
    root: Number = Number("autograd's sequence number of the node that it began at")
    rows: Number = Number("rows of the model's first input")
    scale: Number = Number("scale of a gradient scaler, where it has scaled the loss")
    scaled: Flag = Flag("whether a gradient scaler has scaled the loss")
    tokens: Number = Number("elements that the loss was averaged over")


class AverageEvent(Observation, kind="average"):
    """A line that averages tensors with the weights by the same factors."""

    __slots__ = ()
    falls: Flag = Flag("whether that number becomes smaller from step to step")
    lost: Flag = Flag("whether the average is computed and stored nowhere")
    own: Number = Number("number that it multiplies the average with before it adds the rest")
    tensors: Count = Count("tensors that it averages")
    trained: Flag = Flag("whether the optimizer gives the average gradients, too")


class BackwardEvent(BackwardStart, kind="backward"):
    """A backward pass."""

    __slots__ = ()
    added: Count = Count("parameters whose gradient was added to one that waited for a step")
    forward: Flag = Flag("whether there was a forward, of an unknown batch, before it")
    reached: Count = Count("parameters that got a gradient")
    stale: Count = Count("parameters whose gradient was added to one that a step has used")

    @property
    def has_forward(self) -> bool:
        """Whether a forward was observed before it."""
        return self.rows is not None or "forward" in self.numbers

    @property
    def may_reach(self) -> bool:
        """Whether it reached a parameter, or was not counted."""
        return self.numbers.get("reached", 1.0) > 0


class BackwardErrorEvent(BackwardStart, kind="backward-error"):
    """A backward that raised an exception."""

    __slots__ = ()
    freed: Flag = Flag("whether the graph had been freed")
    in_place: Flag = Flag("whether a saved tensor had been modified in place")


class CarriedEvent(Event, kind="carried"):
    """Gradient history that is carried from step to step."""

    __slots__ = ()
    collected: Flag = Flag("whether tensors are collected in a container")
    repeated: Flag = Flag("whether it happens in every step")
    sum: Flag = Flag("whether a sum is carried on")


class KeptEvent(Event, kind="kept"):
    """Gradient history that a variable keeps, of which no backward makes use."""

    __slots__ = ()
    collected: Flag = Flag("whether tensors are collected in a container")
    nodes: Count = Count("operations of earlier steps that are kept")
    nodes_before: Count = Count("the same when they were counted for the first time")
    repeated: Flag = Flag("whether it happens in every step")
    steps: Count = Count("steps since that first count")
    sum: Flag = Flag("whether a sum is carried on")


class ClipEvent(Event):
    """A call of a function that clips gradients."""

    __slots__ = ()
    empty: Count = Count("parameters without a gradient")
    exhausted: Flag = Flag("whether it was given an iterator that was used up")
    fresh: Count = Count("parameters with a gradient that no step has used")
    norm: Number = Number("norm of all gradients before the clip")
    parameters: Count = Count("parameters that it was given")
    scaled: Flag = Flag("whether the gradients still carry a scaler's scale")
    scope: Number = Number("index of the set of parameters that it was given")
    spent: Count = Count("parameters whose gradient a step has used")

    @property
    def limit(self) -> float | None:
        """Largest norm, or largest magnitude of an element; None if unknown."""
        return None


class ClipNormEvent(ClipEvent, kind="clip-norm"):
    """A clip by the norm of all gradients."""

    __slots__ = ()
    max_norm: Number = Number("largest norm allowed")
    norm_type: Number = Number("order of the norm, 2 where it is not recorded")

    @property
    def limit(self) -> float | None:
        """Largest norm allowed; None if unknown."""
        return self.max_norm


class ClipValueEvent(ClipEvent, kind="clip-value"):
    """A clip of single elements."""

    __slots__ = ()
    clip_value: Number = Number("largest magnitude of an element allowed")
    cosine: Number = Number("cosine between all gradients before and after the clip")
    norm_after: Number = Number("norm of all gradients after the clip")

    @property
    def limit(self) -> float | None:
        """Largest magnitude of an element allowed; None if unknown."""
        return self.clip_value


class DroppedUpdateEvent(Event, kind="dropped-update"):
    """A script without any step has a line that computes new weights and does not store them."""

    __slots__ = ()
    parameters: Count = Count("parameters with a gradient that no step has used")


class EpochEvent(Event, kind="epoch"):
    """The start of an iteration over a data loader."""

    __slots__ = ()
    batches: Number = Number("batches of the loader")


class GradEvent(Event, kind="grad"):
    """A call of `autograd.grad`."""

    __slots__ = ()
    create: Flag = Flag("whether it builds a graph of itself (`create_graph`)")
    inputs: Count = Count("tensors that gradients were asked for")


class GradientHooksEvent(Event, kind="gradient-hooks"):
    """A script has registered the same hook on parameters again and again."""

    __slots__ = ()
    before: Count = Count("hooks of a parameter at the first count")
    hooks: Count = Count("hooks of a parameter at the last count")
    parameters: Count = Count("parameters that have as many")
    times: Count = Count("counts that found more than the one before")


class GradErrorEvent(Event, kind="grad-error"):
    """A call of `autograd.grad` that raised an exception."""

    __slots__ = ()
    freed: Flag = Flag("whether the graph had been freed")
    in_place: Flag = Flag("whether a saved tensor had been modified in place")


class KeptGradientsEvent(Observation, kind="kept-gradients"):
    """A script uses collections of gradients, and a backward has written to what they hold."""

    __slots__ = ()
    collections: Count = Count("collections that hold the same gradients")


class ModeEvent(Event, kind="mode"):
    """A change between train and eval mode."""

    __slots__ = ()
    batchnorm: Count = Count("batch-norm layers in eval mode")
    dropout: Count = Count("dropout layers in eval mode")
    eval: Flag = Flag("whether the model is in eval mode")


class ModuleFlagEvent(Observation, kind="module-flag"):
    """Modules have an attribute `requires_grad`, whose value their parameters contradict."""

    __slots__ = ()
    modules: Count = Count("modules with the attribute")
    parameters: Count = Count("parameters that contradict it")
    value: Flag = Flag("whether the attribute is true")


class OneSignedHookEvent(Observation, kind="one-signed-hook"):
    """The gradients of all parameters with the same hook have no element of one sign."""

    __slots__ = ()
    counts: Count = Count("steps in which the gradients were read")
    elements: Count = Count("elements that were read")
    parameters: Count = Count("parameters with the hook")
    positive: Flag = Flag("whether elements are positive, and none is negative")
    zeros: Count = Count("elements that are 0")


class ReplacedWeightsEvent(Event, kind="weights-replaced"):
    """Averages of earlier weights replaced those of an optimizer, or steps were undone."""

    __slots__ = ()
    pulled: Count = Count("moves towards the weights before the first step")
    steps: Count = Count("steps of the optimizer")
    times: Count = Count("replacements")
    undone: Count = Count("steps whose weights were put back")


class ScalerStepEvent(Event, kind="scaler-step"):
    """A call of a gradient scaler's `step`."""

    __slots__ = ()
    found_inf: Flag = Flag("whether a gradient was not finite")
    skipped: Flag = Flag("whether the step was skipped")


class ScalerUpdateEvent(Event, kind="scaler-update"):
    """A call of a gradient scaler's `update`."""

    __slots__ = ()
    scale_after: Number = Number("scale after the update")
    scale_before: Number = Number("scale before the update")


class SchedulerEvent(Event, kind="scheduler"):
    """A step of a learning rate scheduler."""

    __slots__ = ()
    called: Number = Number("whether the line calls the metric a loss (1) or a score (-1)")
    lr_after: Number = Number("learning rate after the call")
    lr_before: Number = Number("learning rate before the call")
    maximises: Flag = Flag("whether a larger metric counts as better")
    metric: Number = Number("metric that a `ReduceLROnPlateau` is given")


class SharedWeightsEvent(Observation, kind="shared-weights"):
    """What a script keeps of its weights shares their memory."""

    __slots__ = ()
    factor: Number = Number("number that an average with itself multiplies the weights with")
    parameters: Count = Count("weights that share their memory with what is kept")
    restored: Flag = Flag("whether they are restored from it, and not averaged")
    same: Flag = Flag("whether they are copied into another module, which is the same")
    steps: Count = Count("optimizer steps between the keeping and the restoring")


class StillTargetEvent(Observation, kind="still-target"):
    """A line whose targets a network computes that never changes."""

    __slots__ = ()
    may_update: Flag = Flag("whether the user's files may update it, and no other one behind it")
    same: Flag = Flag("whether it is the trained network itself, under another name")
    steps: Count = Count("optimizer steps in which it was watched")
    weight: Number = Number("index of one of its weights")


class StepEvent(Event, kind="step"):
    """A step of an optimizer, or of a script that changes the weights itself."""

    __slots__ = ()
    backwards: Number = Number("backward passes whose gradients the step uses")
    clipped: Count = Count("parameters whose gradient was clipped")
    evaluations: Number = Number("evaluations of the closure since the optimizer was made")
    fresh: Count = Count("parameters with a gradient that no step had used")
    lr: Number = Number("learning rate of the first group")
    manual: Flag = Flag("whether the script changed the weights itself")
    none: Count = Count("parameters without a gradient")
    nonfinite: Count = Count("parameters whose gradient is not finite")
    norm: Number = Number("norm of all gradients")
    parameters: Count = Count("parameters of the optimizer")
    stale: Count = Count("parameters whose gradient an earlier step had used")
    with_gradient: Count = Count("parameters with a gradient")
    written: Count = Count("parameters whose gradient the script itself has written to")

    @property
    def knows_nonfinite(self) -> bool:
        """Whether non-finite gradients were counted."""
        return "nonfinite" in self.numbers


class UnitRatioEvent(Observation, kind="unit-ratio"):
    """A line computes a ratio of probabilities that is 1, although its data have trained before."""

    __slots__ = ()
    elements: Count = Count("ratios of a captured step")
    reuses: Count = Count("captured steps that train on data of an earlier one")


class UnusedDerivativeEvent(Observation, kind="unused-derivative"):
    """A line computes a derivative with a graph that no backward goes through."""

    __slots__ = ()
    steps: Count = Count("captured steps that did not use it")


class UnscaleEvent(Event, kind="unscale"):
    """A call of a gradient scaler's `unscale_`."""

    __slots__ = ()
    scale: Number = Number("scale that gradients were divided by")


OUTSIDE = "outside"
"""Subject of a `ZeroEvent` of gradients that the script sets itself, without a call that zeroes."""


class ZeroEvent(Event, kind="zero"):
    """A call that zeroes gradients, or what a script does in its place."""

    __slots__ = ()
    parameters: Count = Count("parameters whose gradients were zeroed")
    set_to_none: Flag = Flag("whether gradients were set to None")
    unspent: Count = Count("parameters whose gradient no step had used")


class ZeroQuotientEvent(Observation, kind="zero-quotient"):
    """A line divides whole numbers, and rounds all of them down to 0."""

    __slots__ = ()
    divisor: Number = Number("number that they are divided by")
    elements: Count = Count("numbers in all of these steps")
    largest: Number = Number("largest of these numbers")
    steps: Count = Count("captured steps with different numbers")


def event_of(record: EventRecord, position: int = 0) -> Event:
    """Return the event of a record, as one of its kind."""
    return EVENT_CLASSES.get(record.kind, Event)(record, position)


def named(kind: Callable[Names, Event], *_: Names.args, **numbers: Names.kwargs) -> dict[str, Any]:
    """Return numbers by name, for an event of a kind that declares them."""
    return numbers


def only(kind: type[AnyEvent], events: Iterable[Event]) -> Iterator[AnyEvent]:
    """Yield the events of a kind."""
    return (event for event in events if isinstance(event, kind))
