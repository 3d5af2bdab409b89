"""Records where a script starts an epoch, steps its learning-rate schedulers, or compiles."""

import ast
import dis
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, FunctionType
from typing import Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
)
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind

from gradscope.capture.compiler import is_traced, may_run_compiled
from gradscope.capture.source.lines import Line, is_users_file
from gradscope.capture.training.event_log import known, number, unread
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.locations import stem
from gradscope.capture.training.optimizers import Known, learning_rate
from gradscope.capture.training.schedules import Schedules
from gradscope.capture.training.state import TrainingState
from gradscope.recording.events import EpochEvent, SchedulerEvent


class Compilations:
    """Reports everything that is about to be compiled, however it was requested.

    `torch.compile` is one way of many: `torch._dynamo.explain`, `torch.export`, ...

    Args:
        begin: Called before something is compiled.
    """

    def __init__(self, patches: Patches, begin: Callable[[], None]) -> None:
        self._patches, self._begin = patches, begin
        self._listens = False

    def start(self) -> None:
        """Start listening."""
        if may_run_compiled():
            self._begin()
        self.listen()

    def listen(self) -> None:
        """Listen to the compiler, if the script has imported it by now."""
        frames = None if self._listens else sys.modules.get("torch._dynamo.eval_frame")
        context = getattr(frames, "OptimizeContext", None)
        if context is not None:
            self._listens = True
            self._patches.wrap(context, "__init__", self._wrap)

    def _wrap(self, original: Function) -> Function:
        def __init__(context: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
            self._begin()
            original(context, *args, **kwargs)

        return __init__


class Loaders:
    """Observes the iterators of data loaders: they start an epoch, or an evaluation."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training

    def install(self, patches: Patches) -> None:
        """Start observing."""
        patches.wrap(DataLoader, "__iter__", self._wrap)
        self._training.batches.install(patches)

    def _wrap(self, original: Function) -> Function:
        def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: ANN401, N807
            training, frame = self._training, sys._getframe(1)
            # If another thread makes the steps, it does not need this event.
            if not (
                is_traced()
                or training.pace.is_elsewhere()
                or training.repeats("epoch", None, frame)
            ):
                training.guard.glance(self._note, loader, frame)
            iterator = original(loader)
            if not is_traced() and training.guard.active:
                training.guard.quickly(training.batches.opened, loader, iterator)
            return iterator

        return __iter__

    def _note(self, loader: DataLoader[Any], frame: FrameType) -> None:
        location = self._training.locations.of(frame)
        expression = location.expression()
        if expression is None:  # Python 3.12 gives the position of the whole loop
            statement = location.statement()
            expression = statement.iter if isinstance(statement, ast.For) else None
        if isinstance(expression, ast.Call) and expression.args:
            expression = expression.args[0]  # for example `enumerate(loader)`
        name = None if expression is None else stem(expression)
        self._training.batches.name(loader, name or "")
        self._training.event_log.note(
            "epoch", location, known(EpochEvent, batches=_length(loader)), subject=name or ""
        )


def _length(loader: DataLoader[Any]) -> int | None:
    # A loader of an iterable data set remembers calls of `len`, and warns later.
    if loader._dataset_kind != _DatasetKind.Map:
        return None
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a sampler of the user's
        return None


_MOST_CALLED = 2
"""Maximum depth of calls that are followed in a function of the learning rate."""

_INNER = "_update_lr" if hasattr(LRScheduler, "_update_lr") else "step"
"""Called by `LRScheduler.step` after its warnings, which thus name the script's line."""


class Schedulers:
    """Observes every scheduler of torch, and its subclasses."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._schedules = Schedules(training.guard, training.locations)
        self._depth = 0
        """Number of nested calls: some schedulers step others."""

    def install(self, patches: Patches) -> None:
        """Start observing."""
        self._schedules.install(patches)
        patches.wrap(LRScheduler, _INNER, self._wrap)
        # Some classes, such as `ReduceLROnPlateau`, do not call the base class.
        for kind in _with_steps_of_their_own():
            patches.wrap(kind, "step", self._wrap)

    def _wrap(self, original: Function) -> Function:
        guard = self._training.guard

        def step(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            # Every scheduler steps once in its own `__init__`, which is no call of the script.
            if is_traced() or not guard.active or self._depth or _is_initial(scheduler):
                return original(scheduler, *args, **kwargs)
            is_repeated = self._training.repeats(
                "scheduler", _optimizer(scheduler), sys._getframe(1)
            )
            before = None if is_repeated else guard.run(_rate, scheduler)
            self._depth += 1
            try:
                result = original(scheduler, *args, **kwargs)
            finally:
                self._depth -= 1
            if not is_repeated:
                guard.run(self._note, scheduler, before, (args, kwargs), sys._getframe(1))
            return result

        return step

    def _note(
        self,
        scheduler: LRScheduler,
        before: object,
        given: tuple[tuple[object, ...], dict[str, object]],
        frame: FrameType,
    ) -> None:
        training = self._training
        optimizer, rate = _optimizer(scheduler), _rate(scheduler)
        location = training.locations.of(frame)
        if optimizer is not None and rate == 0.0:
            entry = training.optimizers.of(optimizer)
            if entry.rested is None:
                # Whole numbers divided in a factor of the rate are 0 for most steps.
                entry.rested = _line_of_zero(scheduler)
                entry.is_changed |= entry.rested is not None
        if optimizer is not None:
            entry = training.optimizers.of(optimizer)
            _note_plan(entry, scheduler)
            _note_line(entry, scheduler, self._schedules.line(scheduler))
        if optimizer is not None and isinstance(scheduler, LambdaLR):
            _note_function(training.optimizers.of(optimizer), scheduler)
        training.event_log.note(
            "scheduler",
            location,
            known(SchedulerEvent, lr_before=unread(before), lr_after=unread(rate))
            | self._schedules.numbers(scheduler, *given, location),
            optimizer=None if optimizer is None else training.optimizers.of(optimizer).index,
            subject=type(scheduler).__name__,
        )


_PLANNED = {
    OneCycleLR: "total_steps",
    CosineAnnealingLR: "T_max",
    LinearLR: "total_iters",
    PolynomialLR: "total_iters",
}
"""By class: the attribute with the number of steps that a schedule is planned for."""


_PLANNED_OF_WARM_UP = "num_training_steps"
"""Argument with this number of the factors that transformers makes: `get_linear_schedule_…`."""


def _note_line(entry: Known, scheduler: LRScheduler, line: Line | None) -> None:
    """Note the line that made a scheduler."""
    plateau = line if isinstance(scheduler, ReduceLROnPlateau) else None
    entry.is_changed |= plateau != entry.plateau or (line is not None and entry.schedule is None)
    entry.plateau = plateau or entry.plateau
    entry.schedule = entry.schedule or line


def _note_plan(entry: Known, scheduler: LRScheduler) -> None:
    """Note the number of steps that a scheduler is planned for."""
    attribute = _PLANNED.get(type(scheduler))
    planned = None if attribute is None else getattr(scheduler, attribute, None)
    if isinstance(scheduler, LambdaLR) and scheduler.lr_lambdas:
        function = scheduler.lr_lambdas[0]
        if isinstance(function, partial):
            planned = function.keywords.get(_PLANNED_OF_WARM_UP)
    if entry.planned_steps is None and type(planned) is int:
        entry.planned_steps, entry.is_changed = planned, True


def _note_function(entry: Known, scheduler: LambdaLR) -> None:
    """Note the rate that a scheduler multiplies, and the script's function of the factor."""
    if entry.base_rate is None and scheduler.base_lrs:
        base, function = scheduler.base_lrs[0], scheduler.lr_lambdas[0]
        function = getattr(function, "__func__", function)  # of a method
        entry.base_rate = float(base) if isinstance(base, (int, float)) else None
        entry.rate_function = _line_of(function) if type(function) is FunctionType else None
        entry.is_changed = True


def _line_of_zero(scheduler: LRScheduler) -> Line | None:
    """Return the line of a `LambdaLR`'s functions that divides whole numbers, or the function."""
    functions = [one for one in getattr(scheduler, "lr_lambdas", ()) if type(one) is FunctionType]
    if not functions:
        return None
    lines = dict.fromkeys(line for one in functions for line in _divisions(one, _MOST_CALLED))
    return next(iter(lines)) if len(lines) == 1 else _line_of(functions[0])


def _divisions(function: FunctionType, depth: int) -> Iterator[Line]:
    """Yield the lines of a function, and of the script's functions it names, that round down."""
    line = function.__code__.co_firstlineno
    for one in dis.get_instructions(function.__code__):
        line = (one.positions and one.positions.lineno) or line
        if one.argrepr in ("//", "//="):
            yield Line(function.__code__, line)
    for name in function.__code__.co_names if depth else ():
        called = function.__globals__.get(name)
        if type(called) is FunctionType and is_users_file(called.__code__.co_filename):
            yield from _divisions(called, depth - 1)


def _line_of(function: FunctionType) -> Line:
    return Line(function.__code__, function.__code__.co_firstlineno)


def _is_initial(scheduler: LRScheduler) -> bool:
    return getattr(scheduler, "_is_initial", False)


def _optimizer(scheduler: LRScheduler) -> Optimizer | None:
    found = getattr(scheduler, "optimizer", None)
    return found if isinstance(found, Optimizer) else None


def _rate(scheduler: LRScheduler) -> object:
    optimizer = _optimizer(scheduler)
    rate = None if optimizer is None else learning_rate(optimizer)
    return number(rate)


def _with_steps_of_their_own() -> set[type[LRScheduler]]:
    kinds = [kind for kind in vars(lr_scheduler).values() if isinstance(kind, type)]
    return {
        kind
        for kind in kinds
        if issubclass(kind, LRScheduler) and kind is not LRScheduler and "step" in vars(kind)
    }
