"""Where a script steps its learning-rate schedulers."""

import sys
from types import FrameType
from typing import Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from gradscope.capture.compiled import is_traced
from gradscope.capture.training.journal import known, number
from gradscope.capture.training.optimizers import learning_rate
from gradscope.capture.training.patches import Function, Patches
from gradscope.capture.training.scene import Scene

_INNER = "_update_lr" if hasattr(LRScheduler, "_update_lr") else "step"
"""What `LRScheduler.step` calls once it has warned: so its warnings name the script's line."""


class Schedulers:
    """Watches every scheduler of torch's, and those that are made of them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._depth = 0
        """Some schedulers step others."""

    def install(self, patches: Patches) -> None:
        """Watch from now on."""
        patches.wrap(LRScheduler, _INNER, self._wrap)
        for kind in _with_steps_of_their_own():
            patches.wrap(kind, "step", self._wrap)

    def _wrap(self, original: Function) -> Function:
        guard = self._scene.guard

        def step(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if is_traced() or not guard.active or self._depth or _is_initial(scheduler):
                return original(scheduler, *args, **kwargs)
            is_repeated = self._scene.repeats("scheduler", _optimizer(scheduler), sys._getframe(1))
            before = None if is_repeated else guard.run(_rate, scheduler)
            self._depth += 1
            try:
                result = original(scheduler, *args, **kwargs)
            finally:
                self._depth -= 1
            if not is_repeated:
                guard.run(self._note, scheduler, before, sys._getframe(1))
            return result

        return step

    def _note(self, scheduler: LRScheduler, before: object, frame: FrameType) -> None:
        scene = self._scene
        optimizer = _optimizer(scheduler)
        scene.journal.note(
            "scheduler",
            scene.places.of(frame),
            known(lr_before=before, lr_after=_rate(scheduler)),
            optimizer=None if optimizer is None else scene.optimizers.of(optimizer).index,
            subject=type(scheduler).__name__,
        )


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
