"""Detects weights that are replaced by an average, pulled or put back, between two steps."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from types import FrameType
from weakref import ref

from torch import Tensor
from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced
from gradscope.capture.first_elements import FirstElements
from gradscope.capture.source.statements import tree_of
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.locations import NOWHERE, Location
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.update_lines import only_line_of
from gradscope.frozen import dataclass
from gradscope.recording.events import ReplacedWeightsEvent, named

_BITS = 1 << 22
"""Size of the filter: half a megabyte."""


class SeenValues:
    """A Bloom filter of values: those that were added are known again for certain.

    Of other values, 1 in 500 passes for a known one after 100,000 steps, and 1 in 7 after a
    million.
    """

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, each: Iterable[bytes]) -> None:
        """Remember each of some values."""
        if not self._bits:
            self._bits = bytearray(_BITS // 8)
        bits = self._bits
        for one, other in map(_bits_of, each):
            bits[one >> 3] |= 1 << (one & 7)
            bits[other >> 3] |= 1 << (other & 7)

    def __contains__(self, values: bytes) -> bool:
        """Return whether values were added, or pass for some that were."""
        return bool(self._bits) and all(
            self._bits[bit >> 3] >> (bit & 7) & 1 for bit in _bits_of(values)
        )


def _bits_of(values: bytes) -> tuple[int, int]:
    number = hash(values)
    return number % _BITS, (number >> 32) % _BITS


_FEWEST, _MOST = 4, 16
"""Elements that are compared: the first ones of a bias, or of the gain of a normalisation."""
_MOST_HELD = 1_024
"""Number of steps whose values are held, give or take a few."""
_ON_THE_LINE = 1e-4
"""Relative distance from a straight line that rounding explains."""
_ROUNDING = 1e-5
_NEARLY = 1e-3
"""Relative deviation from the way back to the first values."""
_NEARLY_ALL = 0.9
"""Share of the steps that are followed by a move back."""
_REPLACING = frozenset(
    {
        "apply_shadow",
        "assign",
        "copy_params",
        "copy_to",
        "load_state_dict",
        "update_model_with_ema",
    }
)
_AVERAGE = re.compile(r"ema|avg|averag|shadow|swa|slow|mean|smooth|polyak", re.IGNORECASE)


@dataclass(slots=True)
class _Course:
    """The first elements of one parameter over the steps of an optimizer."""

    optimizer: ref[Optimizer]
    parameter: WeakTensor[Tensor]
    elements: FirstElements
    last: bytes
    """After the last step."""
    before: bytes
    """Before the last step."""
    first: Sequence[float]
    """Before the first step."""
    start: Sequence[float]
    """At the beginning, or after the last replacement."""
    low: Sequence[float]
    high: Sequence[float]
    """The least and the largest values of each element, without those that are held."""
    held: list[bytes] = field(default_factory=list)
    """The values after recent steps."""
    known: SeenValues = field(default_factory=SeenValues)
    """The values after each step."""
    steps: int = 0
    averages: int = 0
    """Number of replacements by an average of earlier values."""
    pulls: int = 0
    """Number of moves towards the values before the first step."""
    undone: int = 0
    """Number of times that the values before the last step came back."""
    is_over: bool = False
    """Whether anything else has changed the parameter between steps."""

    @property
    def is_replaced(self) -> bool:
        """Whether nothing but averages have replaced the values."""
        return self.averages > 0 and not (self.pulls or self.undone or self.is_over)

    @property
    def is_pulled(self) -> bool:
        """Whether nearly every step is followed by a move back to the first values."""
        return self.pulls >= _NEARLY_ALL * (self.steps - 1) > 0 and not self.is_over

    @property
    def is_undone(self) -> bool:
        """Whether nearly every step is undone before the next one."""
        return self.undone >= _NEARLY_ALL * (self.steps - 1) > 0 and not self.is_over

    def see(self, values: bytes) -> None:
        """Add values of the parameter."""
        self.last = values
        self.held.append(values)

    def settle(self) -> None:
        """Add the values that are held to those known, and to the limits."""
        if self.held:
            self.known.add(self.held)
            # One call of torch for about a thousand steps: each alone would cost more than the
            # reads.
            low, high = self.elements.limits(bytearray().join(self.held))
            self.low = list(map(min, self.low, low))
            self.high = list(map(max, self.high, high))
            self.held = []

    def change(self, values: bytes) -> None:
        """Judge how something other than a step has changed the parameter."""
        now, last = self.elements.numbers(values), self.elements.numbers(self.last)
        if now == last:  # 0 has two signs
            return
        self.settle()
        if values == self.before:
            self.undone += 1
        elif _is_between(last, self.first, now):
            self.pulls += 1
        # Values of an earlier step come from a checkpoint or from a rejected step.
        elif values not in self.known and self._is_average(last, now):
            self.averages += 1
        else:
            self.is_over = True
        self.start = now
        self.see(values)

    def _is_average(self, last: Sequence[float], now: Sequence[float]) -> bool:
        """Return whether values lie between earlier ones, and do not lead back to one.

        Lookahead and Reptile go back along the line from the last start.
        """
        spans = [high - low for low, high in zip(self.low, self.high, strict=True)]
        is_between = all(
            low - _ROUNDING * span <= value <= high + _ROUNDING * span
            for value, low, high, span in zip(now, self.low, self.high, spans, strict=True)
        )
        return is_between and not _is_on_line(self.start, last, now)


@dataclass(frozen=True, slots=True)
class _Projection:
    """Where values lie along the straight line between two others."""

    share: float
    """Part of the way that the values have gone along the line; 0 if there is no way."""
    rest: float
    """Squared distance from the line."""
    length: float
    """Squared length of the way."""
    moved: float
    """Squared distance from the start."""

    @classmethod
    def of(
        cls, start: Sequence[float], end: Sequence[float], values: Sequence[float]
    ) -> "_Projection":
        """Project values onto the line from a start to an end."""
        way = [b - a for a, b in zip(start, end, strict=True)]
        moved = [b - a for a, b in zip(start, values, strict=True)]
        length = sum(one * one for one in way)
        share = sum(a * b for a, b in zip(way, moved, strict=True)) / length if length else 0.0
        rest = sum((m - share * w) ** 2 for m, w in zip(moved, way, strict=True))
        return cls(share=share, rest=rest, length=length, moved=sum(one * one for one in moved))


def _is_on_line(start: Sequence[float], end: Sequence[float], values: Sequence[float]) -> bool:
    found = _Projection.of(start, end, values)
    return found.rest <= _ON_THE_LINE**2 * max(found.length, found.moved)


def _is_between(start: Sequence[float], end: Sequence[float], values: Sequence[float]) -> bool:
    """Return whether values lie on the way between two others, as far as rounding shows."""
    found = _Projection.of(start, end, values)
    rounding = _ROUNDING**2 * sum(one * one for one in end) / 100
    limit = (found.share * _NEARLY) ** 2 * found.length + rounding
    return 0.0 < found.share < 1.0 and found.rest <= limit


class ReplacedWeights:
    """Compares a small parameter of each optimizer before each step with that after the last."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._courses: dict[int, _Course] = {}
        """By `id` of the optimizer."""
        self._rest: dict[int, ref[Optimizer]] = {}
        """By `id`, the optimizers of which nothing can be compared."""
        self._ended: list[_Course] = []
        """Courses of optimizers that are gone."""
        self._files: dict[str, None] = {}
        self.unread: str | None = None
        """Why the weights of an optimizer cannot be compared; None if all can."""

    def before_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Compare the weights with those that the last step left."""
        course = self._courses.get(id(optimizer))
        # The `id` of an optimizer that is gone may be that of another one.
        if course is None or course.optimizer() is not optimizer:
            rest = self._rest.get(id(optimizer))
            if (rest is None or rest() is not optimizer) and not is_traced():
                self._training.guard.run(self._begin, optimizer)
            return
        values = None if course.is_over else course.elements.read(course.parameter())
        if values is None or values == course.last:
            course.before = course.last
            return
        self._training.guard.run(self._change, course, values, frame)
        course.before = values

    def _begin(self, optimizer: Optimizer) -> None:
        before = self._courses.pop(id(optimizer), None)
        self._ended += [] if before is None else [before]
        course = _course(optimizer)
        if course is None:
            self._rest[id(optimizer)] = ref(optimizer)
            self.unread = self.unread or _why_unread(optimizer)
        else:
            self._courses[id(optimizer)] = course

    def _change(self, course: _Course, values: bytes, frame: FrameType) -> None:
        course.change(values)
        users = self._training.locations.users(frame)
        self._files |= dict.fromkeys(one.f_code.co_filename for one in users)

    def after_step(self, optimizer: Optimizer) -> None:
        """Keep what the step left."""
        course = self._courses.get(id(optimizer))
        if course is None or course.is_over:
            return
        values = course.elements.read(course.parameter())
        if values is not None:
            course.steps += 1
            course.last = values  # not by `see`: one call less in every step
            course.held.append(values)

    def settle(self) -> None:
        """Sum up the values that are held, where they are many."""
        for course in self._courses.values():
            if len(course.held) > _MOST_HELD:
                course.settle()

    def finish(self) -> None:
        """Record the optimizers whose weights only averages replaced, or only one force moved."""
        for course in (*self._ended, *self._courses.values()):
            if course.is_replaced or course.is_pulled or course.is_undone:
                numbers = named(
                    ReplacedWeightsEvent,
                    times=float(course.averages),
                    steps=float(course.steps),
                    pulled=float(course.pulls),
                    undone=float(course.undone),
                )
                finders = (_replacing_by_average, _replacing) if course.is_replaced else (_moving,)
                self._training.event_log.note("weights-replaced", self._line(finders), numbers)

    def _line(self, finders: Iterable[Callable[[str], Iterable[int]]]) -> Location:
        for find in finders:
            line = only_line_of(find, self._files)
            if line is not NOWHERE:
                return line
        return NOWHERE


def _course(optimizer: Optimizer) -> _Course | None:
    every = (one for group in optimizer.param_groups for one in group["params"])
    fitting = [one for one in every if one.grad is not None and one.numel() >= _FEWEST]
    if not fitting:
        return None
    # The rows of a matrix may be those of an embedding, of which most stay as they are.
    parameter = max(fitting, key=lambda one: (one.ndim == 1, min(one.numel(), _MOST)))
    elements = FirstElements(parameter, _MOST)
    values = elements.read(parameter)
    if values is None:
        return None
    numbers = elements.numbers(values)
    held = WeakTensor(parameter)
    course = _Course(
        ref(optimizer), held, elements, values, values, numbers, numbers, numbers, numbers
    )
    course.see(values)
    return course


def _why_unread(optimizer: Optimizer) -> str | None:
    """Return why no weights of an optimizer are read; None if none is large enough."""
    every = [one for group in optimizer.param_groups for one in group["params"]]
    fitting = [one for one in every if one.grad is not None and one.numel() >= _FEWEST]
    if not fitting:
        return None
    devices = {one.device.type for one in fitting}
    if "cpu" not in devices:
        return (
            f"reading weights on {' and '.join(sorted(devices))} in every step would make it wait"
        )
    return "the weights are of a tensor subclass, or of a type without arithmetic"


def _replacing(file: str) -> Iterator[int]:
    """Yield the lines that replace all weights of something."""
    for one in ast.walk(tree_of(file)):
        match one:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name in _REPLACING:
                yield one.lineno


def _replacing_by_average(file: str) -> Iterable[int]:
    """Yield those of them that name an average."""
    numbers = set(_replacing(file))
    for one in ast.walk(tree_of(file)):
        if (
            isinstance(one, ast.Expr)
            and one.lineno in numbers
            and _AVERAGE.search(ast.unparse(one))
        ):
            yield one.lineno


def _moving(file: str) -> Iterator[int]:
    """Yield the loops over the parameters of two models that write to one of them."""
    for one in ast.walk(tree_of(file)):
        if isinstance(one, ast.For) and ast.unparse(one.iter).startswith("zip("):
            text = ast.unparse(one)
            is_write = any(word in text for word in (".copy_(", ".data", ".lerp_(", ".mul_("))
            if "parameters()" in ast.unparse(one.iter) and is_write:
                yield one.lineno
