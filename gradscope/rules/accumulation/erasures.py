"""Gradients that were zeroed before any step had used them."""

from dataclasses import dataclass

from gradscope.analysis.optimizer_steps import RunEvent, Series, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwriting:
    """Passes before one step of which each but the last was zeroed, as a loop does."""

    erased: tuple[RunEvent, ...]
    kept: tuple[RunEvent, ...]
    zero: RunEvent

    @property
    def divisor(self) -> float:
        """By what the loss was divided, 1 where by nothing."""
        return self.kept[-1].number("divided") or 1.0


def last_erasure(series: Series, window: Window) -> RunEvent | None:
    """Return what zeroed the gradients behind the last backward of a step that then got none."""
    if not window.is_empty:
        return None
    for event in reversed(since_any_step(window)):
        if event.kind == "backward":
            return None
        if series.may_lose(event):
            return event
    return None


def overwriting(series: Series, window: Window) -> Overwriting | None:
    """Return how a loop zeroed all passes but the last, None where it did not.

    Passes of several lines are different things, as an attack and the training on its result are;
    so are erasures of several lines. What reaches parameters of others too is not erased by the
    zero. That a loop zeroes after its steps as well, in another line, changes nothing.
    """
    erased: list[RunEvent] = []
    pending: list[RunEvent] = []
    zeros: list[RunEvent] = []
    erasing = set[int | None]()
    for event in since_any_step(window):
        if event.kind == "backward":
            pending.append(event)
        elif event.kind == "zero" and _concerns(series, event):
            zeros.append(event)
            if pending and event.count("unspent") >= max(one.count("reached") for one in pending):
                erased += pending
                pending = []
                erasing.add(event.site)
    passes = [*erased, *pending]
    zeros = [zero for zero in zeros if zero.site in erasing]
    is_loop = len({one.site for one in passes}) == 1 and len(erasing) == 1
    if not erased or not pending or not is_loop or len(zeros) < len(passes):
        return None
    if window.step.number("backwards") not in (None, len(pending)):
        return None  # gradients of another origin, as of a projection of several
    return Overwriting(erased=tuple(erased), kept=tuple(pending), zero=zeros[-1])


def since_any_step(window: Window) -> tuple[RunEvent, ...]:
    """Return what happened since the last step of any optimizer.

    What was computed before has served that step, even where it is zeroed for this one.
    """
    steps = [place for place, event in enumerate(window.events) if event.kind == "step"]
    return window.events[steps[-1] + 1 :] if steps else window.events


def _concerns(series: Series, zero: RunEvent) -> bool:
    return zero.optimizer is None or zero.optimizer in series.optimizers
