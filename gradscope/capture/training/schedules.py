"""Notes where schedules are made, and reads the metric that a `ReduceLROnPlateau` is given."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from gradscope.capture.compiler import is_traced
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import tree_of
from gradscope.capture.training.event_log import Number, known, unread
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.capture.training.locations import Location, Locations
from gradscope.recording.events import SchedulerEvent

_LOSS = re.compile(
    r"(?<![a-z])(?:loss(?:es)?|criterion|mse|mae|rmse|nll|cross_?entropy|err(?:or)?s?|perplexity|ppl"
    r"|wer|cer)(?![a-z])",
    re.IGNORECASE,
)
_SCORE = re.compile(
    r"(?<![a-z])(?:acc|accuracy|accuracies|correct|f1|auc|auroc|iou|miou|dice|bleu|rouge|psnr|ssim"
    r"|rewards?|returns?)(?![a-z])",
    re.IGNORECASE,
)
_MOST_FOLLOWED = 3
"""Maximum number of assignments and functions that are followed to what a metric is made of."""


class Schedules:
    """Notes where schedulers are made, and what the steps of those of a metric are given."""

    def __init__(self, guard: Guard, locations: Locations) -> None:
        self._guard, self._locations = guard, locations
        self._made: WeakKeyDictionary[LRScheduler, Line] = WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """Start to observe where they are made."""
        patches.wrap(LRScheduler, "__init__", self._wrap_making)
        # It does not call the base class.
        patches.wrap(ReduceLROnPlateau, "__init__", self._wrap_making)

    def line(self, scheduler: LRScheduler) -> Line | None:
        """Return the line that made a scheduler; None if it was made before."""
        return self._made.get(scheduler)

    @staticmethod
    def numbers(
        scheduler: object, given: tuple[object, ...], options: dict[str, object], at: Location
    ) -> dict[str, Number]:
        """Return the numbers of a step: the metric, its direction, and what the script calls it.

        Args:
            scheduler: The scheduler that steps.
            given: Arguments of its step.
            options: Keyword arguments of its step.
            at: Location of the step.
        """
        if not isinstance(scheduler, ReduceLROnPlateau):
            return {}
        called = _called(at)
        return known(
            SchedulerEvent,
            metric=unread(given[0] if given else options.get("metrics")),
            maximises=scheduler.mode == "max",
            **({} if called is None else {"called": called}),
        )

    def _wrap_making(self, original: Function) -> Function:
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
            original(scheduler, *args, **kwargs)
            if not is_traced() and self._guard.active:
                self._guard.glance(self._note, scheduler, sys._getframe(1))

        return __init__

    def _note(self, scheduler: LRScheduler, frame: FrameType) -> None:
        line = self._locations.of(frame).user
        if line is not None:
            self._made[scheduler] = line


def _called(at: Location) -> float | None:
    """Return 1 if a line's words call a metric a loss, -1 if they call it a score, else None."""
    call = None if at.is_of_trainer else at.users_call()
    if call is None or at.user is None:
        return None
    tree = tree_of(at.user.code.co_filename)
    # The metric comes first; the second argument is an epoch.
    expressions = [*call.args, *(one.value for one in call.keywords)][:1]
    for _ in range(_MOST_FOLLOWED):
        # `1 - accuracy` is a loss, although it names a score.
        if not expressions or any(map(_is_turned, expressions)):
            return None
        words = {word for one in expressions for word in _words(one)}
        is_loss, is_score = (any(map(kind.search, words)) for kind in (_LOSS, _SCORE))
        if is_loss or is_score:
            return None if is_loss and is_score else float(is_loss) - float(is_score)
        expressions = list(_made_of(tree, words))
    return None


def _is_turned(expression: ast.expr) -> bool:
    """Return whether an expression subtracts, so that more of its parts may mean less of it."""
    for one in ast.walk(expression):
        match one:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                continue  # an index
            case ast.BinOp(op=ast.Sub()) | ast.UnaryOp(op=ast.USub()):
                return True
    return False


def _words(expression: ast.expr) -> Iterator[str]:
    """Yield the names, attributes and keys of an expression."""
    for one in ast.walk(expression):
        match one:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                yield word


def _made_of(tree: ast.Module, names: Iterable[str]) -> Iterator[ast.expr]:
    """Yield what a file assigns to names, and what its functions of these names return."""
    wanted = set(names)
    for one in ast.walk(tree):
        match one:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
            ) if name in wanted and not isinstance(value, ast.Constant):
                yield value
            case ast.FunctionDef(name=name) if name in wanted:
                returned = (inner for inner in ast.walk(one) if isinstance(inner, ast.Return))
                yield from (inner.value for inner in returned if inner.value is not None)
