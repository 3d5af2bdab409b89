"""Gradients that were left over from earlier steps, erased before one, or added up."""

import math
from collections import Counter

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, EpochEvent, Event, StepEvent, ZeroEvent
from gradscope.rules.context import RuleContext

_LEAST_CARRIED = 3
"""Minimum number of steps that begin with passes of the previous epoch; fewer are accidents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwriting:
    """Passes before one step of which a loop zeroed each but the last."""

    erased: tuple[BackwardEvent, ...]
    kept: tuple[BackwardEvent, ...]
    zero: ZeroEvent

    @property
    def divisor(self) -> float:
        """Divisor of the loss, 1 without one."""
        return self.kept[-1].divided or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedBatches:
    """Batches of a whole epoch before the only backward of a step, each of which was zeroed for."""

    batches: int
    passed: BackwardEvent
    """The backward of the last batch."""
    zero: ZeroEvent


def last_erasure(series: Series, window: Window) -> Event | None:
    """Return the call that zeroed the gradients before a step that then got none."""
    if not window.is_empty:
        return None
    for event in reversed(since_any_step(window)):
        if isinstance(event, BackwardEvent):
            return None
        if series.may_lose(event):
            return event
    return None


def overwriting(series: Series, window: Window) -> Overwriting | None:
    """Return how a loop zeroed all passes but the last, None if it did not.

    Passes of several lines are different things, as an attack and the training on its result are;
    so are erasures of several lines. What reaches parameters of others too is not erased by the
    zero. That a loop zeroes after its steps as well, in another line, changes nothing.
    """
    erased: list[BackwardEvent] = []
    pending: list[BackwardEvent] = []
    zeros: list[ZeroEvent] = []
    erasing = set[int | None]()
    for event in since_any_step(window):
        if isinstance(event, BackwardEvent):
            pending.append(event)
        elif isinstance(event, ZeroEvent) and _concerns(series, event):
            zeros.append(event)
            if pending and event.unspent >= max(one.reached for one in pending):
                # A loop may leave out a batch that broke the loss, and zero for the next one.
                erased += (one for one in pending if not _is_broken(one))
                pending = []
                erasing.add(event.site)
    passes = [*erased, *pending]
    zeros = [zero for zero in zeros if zero.site in erasing]
    is_loop = len({one.site for one in passes}) == 1 and len(erasing) == 1
    if not erased or not pending or not is_loop or len(zeros) < len(passes):
        return None
    if window.step.backwards not in (None, len(pending)):
        return None  # gradients of another origin, as of a projection of several
    return Overwriting(erased=tuple(erased), kept=tuple(pending), zero=zeros[-1])


def _is_broken(event: BackwardEvent) -> bool:
    """Return whether the loss of a pass is known, and NaN or infinite."""
    return event.loss is not None and not math.isfinite(event.loss)


def skipped_batches(series: Series, window: Window) -> SkippedBatches | None:
    """Return how a loop over a whole loader zeroed for each batch, and only the last was used.

    One line zeroes as often as the loader has batches, without a backward in between.
    """
    loaders = set[float]()
    zeros: list[ZeroEvent] = []
    passes: list[BackwardEvent] = []
    for event in since_any_step(window):
        if isinstance(event, EpochEvent) and not zeros and event.batches is not None:
            loaders.add(event.batches)
        elif isinstance(event, ZeroEvent) and _concerns(series, event):
            if passes:
                return None
            zeros.append(event)
        elif isinstance(event, BackwardEvent):
            passes.append(event)
    # Zeroing at several lines is no loop over batches.
    is_loop = len(zeros) > 1 and len({one.site for one in zeros}) == 1
    if not is_loop or len(passes) != 1 or len(zeros) not in loaders:
        return None
    return SkippedBatches(batches=len(zeros), passed=passes[0], zero=zeros[-1])


def since_any_step(window: Window) -> tuple[Event, ...]:
    """Return what happened since the last step of any optimizer.

    What was computed before has served that step, even where it is zeroed for this one.
    """
    steps = [
        position for position, event in enumerate(window.events) if isinstance(event, StepEvent)
    ]
    return window.events[steps[-1] + 1 :] if steps else window.events


def _concerns(series: Series, zero: ZeroEvent) -> bool:
    return zero.optimizer is None or zero.optimizer in series.optimizers


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Passes that no step has used."""

    passes: tuple[BackwardEvent, ...]
    zero: Event | None
    """Call that erased them; None if the run ended first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """An optimizer most of whose steps are fed by several passes of one line."""

    series: Series
    windows: tuple[Window, ...]
    """Steps that begin with such passes."""
    passes: int
    """Most common number of passes per step."""

    @property
    def site(self) -> int | None:
        """The line of the backward."""
        return self.windows[0].passes[0].site

    @property
    def whole(self) -> tuple[Window, ...]:
        """The steps with this number of passes."""
        return tuple(window for window in self.windows if len(window.passes) == self.passes)


def leftovers(windows: Windows, accumulation: Accumulation) -> tuple[Leftover, ...]:
    """Return the passes of a line that were fewer than a window, and were given up."""
    series = accumulation.series
    found: list[Leftover] = []
    pending: list[BackwardEvent] = []
    for event in windows.events:
        if isinstance(event, BackwardEvent) and event.site == accumulation.site:
            pending.append(event)
        elif isinstance(event, StepEvent) and event.optimizer in series.optimizers:
            pending = []
        elif series.may_lose(event):
            if 0 < len(pending) < accumulation.passes:
                found.append(Leftover(passes=tuple(pending), zero=event))
            pending = []
    if 0 < len(pending) < accumulation.passes and _is_at_end_of_epoch(windows, pending[-1]):
        found.append(Leftover(passes=tuple(pending), zero=None))
    return tuple(found)


def overfull(accumulation: Accumulation) -> tuple[Window, ...]:
    """Return the steps that were fed by passes left over from the epoch before, and a window."""
    found = [one for one in accumulation.windows if len(one.passes) > accumulation.passes]
    with_epoch = [one for one in found if _begins_epoch(one)]
    if with_epoch:
        return tuple(with_epoch)
    if accumulation.series.windows[0] in found:
        return ()  # nothing was left over before: `if i % k == 0 and i > 0` begins with k + 1
    # Epochs of one length leave equally many over.
    sizes = {len(one.passes) for one in found}
    return tuple(found) if len(found) > 1 and len(sizes) == 1 else ()


def carried_over(accumulation: Accumulation) -> tuple[Window, ...]:
    """Return the steps that begin with passes left over from the epoch before, if most do.

    Seven batches with a window of four give steps of four passes, then of seven each: the first
    four of an epoch make it step, with the three that the epoch before has left.
    """
    first, *others = accumulation.series.windows
    size, are_all = len(first.passes), len(accumulation.windows) == 1 + len(others)
    if size < 2 or len(others) < _LEAST_CARRIED or not are_all:
        return ()
    if any(not size < len(one.passes) < 2 * size for one in others):
        return ()
    divisors = {event.divided for one in accumulation.windows for event in one.passes}
    is_of_first = divisors == {float(size)}
    return tuple(others) if is_of_first or all(map(_begins_epoch, others)) else ()


def early(accumulation: Accumulation) -> tuple[Window, ...]:
    """Return the steps right after the first pass of an epoch, which is divided by a whole window.

    A loop makes them that steps if `i % k == 0`, which holds for `i = 0`.
    """
    found = []
    for one in accumulation.series.windows:
        (only, *others) = one.passes or (None,)
        if only is None or others or only.site != accumulation.site:
            continue
        before = [event for event in one.events if event.position < only.position]
        if only.divided == accumulation.passes and any(isinstance(e, EpochEvent) for e in before):
            found.append(one)
    return tuple(found)


def _begins_epoch(window: Window) -> bool:
    first, last = window.passes[0].position, window.passes[-1].position
    return any(isinstance(one, EpochEvent) and first < one.position < last for one in window.events)


def _is_at_end_of_epoch(windows: Windows, last: BackwardEvent) -> bool:
    """Return whether a pass is the last one of its epoch, as far as is known."""
    epochs = [
        one
        for one in windows.events
        if isinstance(one, EpochEvent) and one.position < last.position
    ]
    if not epochs:
        return False
    passes = [
        one
        for one in windows.events
        if isinstance(one, BackwardEvent)
        and one.site == last.site
        and one.position > epochs[-1].position
    ]
    return epochs[-1].batches == len(passes)


def accumulations(context: RuleContext) -> tuple[Accumulation, ...]:
    """Return the optimizers that accumulate."""
    found = [_accumulation(series) for series in context.shared(Windows).series]
    return tuple(one for one in found if one is not None)


def _accumulation(series: Series) -> Accumulation | None:
    windows = tuple(window for window in series.windows if _accumulates(window))
    # A few steps of several passes are an accident, and no accumulation.
    if not windows or 2 * steps_of(windows) < series.step_count:
        return None
    passes = Counter(len(window.passes) for window in windows).most_common(1)[0][0]
    return Accumulation(series=series, windows=windows, passes=passes)


def _accumulates(window: Window) -> bool:
    """Return whether a step is fed by passes of one line, over the same parameters each."""
    first, *others = window.passes or (None,)
    if first is None or not others or window.reuses_gradients:
        return False
    return all(_is_alike(first, one) for one in others)


def _is_alike(one: BackwardEvent, other: BackwardEvent) -> bool:
    is_repeated = other.again
    return one.site == other.site and not is_repeated and one.reached == other.reached


def is_mean(passes: tuple[BackwardEvent, ...]) -> bool:
    """Return whether each loss is known to be a mean over its micro-batch."""
    return bool(passes) and all(one.reduction == 1 for one in passes)
