"""Recordings of training runs with clips, made without torch."""

import math
from collections.abc import Iterable
from dataclasses import replace

from gradscope.recording.evidence.training import ClipScope
from gradscope.recording.records import Recording
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.rules.accumulation.runs import Run

ZERO, FORWARD, BACKWARD, UNSCALE, CLIP, STEP = 20, 21, 22, 23, 24, 25
"""Lines of the imagined loop."""


class ClippedRun(Run):
    """A training script that clips."""

    def __init__(self) -> None:
        super().__init__()
        self._scopes: list[tuple[int, ...]] = []
        self._clipped: set[int] = set()

    def backward(
        self,
        parameters: Iterable[int],
        *,
        line: int = BACKWARD,
        size: float = 1.0,
        loss: float = 1.0,
        **numbers: float,
    ) -> None:
        """Add a gradient of some norm to each of some parameters."""
        held = tuple(parameters)
        before = {index: self.gradients[index].norm for index in held}
        super().backward(held, line=line, loss=loss, **numbers)
        for index, norm in before.items():
            self.gradients[index].norm = norm + size

    def clip(
        self,
        parameters: Iterable[int],
        max_norm: float = 1.0,
        *,
        line: int = CLIP,
        by_value: bool = False,
        **numbers: float,
    ) -> None:
        """Clip gradients as torch does."""
        indices = tuple(parameters)
        if indices not in self._scopes:
            self._scopes.append(indices)
        held = [self.gradients[index] for index in indices]
        norm = math.hypot(*(one.norm for one in held))
        fresh = sum(one.unspent for one in held)
        spent = sum(one.spent and not one.unspent for one in held)
        counted = {
            "clip_value" if by_value else "max_norm": max_norm,
            "parameters": len(held),
            "fresh": fresh,
            "spent": spent,
            "empty": len(held) - fresh - spent,
            "scaled": 0,
            "scope": self._scopes.index(indices),
        }
        if not by_value:
            counted |= {"norm": norm, "norm_type": 2}
            factor = max_norm / (norm + 1e-6)
            for one in held:
                one.norm *= factor if math.isnan(factor) else min(1.0, factor)
        self._clipped.update(indices)
        self.event(
            "clip-value" if by_value else "clip-norm",
            line,
            subject="clip_grad_value_" if by_value else "clip_grad_norm_",
            **{**counted, **numbers},
        )

    def step(self, optimizer: int, *, line: int = STEP, **numbers: float) -> None:
        """Call an optimizer's `step`."""
        held = self._optimizers[optimizer].parameters
        norms = [self.gradients[index].norm for index in held]
        counted = {
            "clipped": len(self._clipped.intersection(held)),
            "nonfinite": sum(not math.isfinite(norm) for norm in norms),
        }
        super().step(optimizer, line=line, **{**counted, **numbers})
        self._clipped.difference_update(held)

    def zero(self, whose: int | Iterable[int], *, line: int = ZERO, **chosen: object) -> None:
        """Zero gradients; what was clipped of them is gone."""
        held = self._optimizers[whose].parameters if isinstance(whose, int) else tuple(whose)
        self._clipped.difference_update(held)
        super().zero(whose if isinstance(whose, int) else held, line=line, **chosen)

    def recording(self) -> Recording:
        """Return what was recorded so far."""
        recording = super().recording()
        scopes = tuple(ClipScope(parameters=scope) for scope in self._scopes)
        return replace(recording, evidence=(*recording.evidence, *scopes))

    def said_by(self, code: str):
        """Return what one rule finds, whatever others would."""
        return judge(self.recording(), Settings(select=(code,))).findings

    def found(self, code: str):
        """Return the one finding of a rule, and make sure that there is no other."""
        (found,) = self.findings(code)
        return found


def trained(
    parameters: int = 4, class_name: str = "SGD"
) -> tuple[ClippedRun, tuple[int, ...], int]:
    """Return a run with a model and its optimizer."""
    run = ClippedRun()
    weights = run.model("model", parameters)
    return run, weights, run.optimizer(weights, class_name)


def healthy_loop(steps: int = 10, max_norm: float = 1.0, size: float = 1.0) -> ClippedRun:
    """Return a loop in the right order."""
    run, weights, optimizer = trained()
    for _ in range(steps):
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.clip(weights, max_norm)
        run.step(optimizer)
    return run
