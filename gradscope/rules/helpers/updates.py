"""Updates of a run: the changes of the weights, and whether training diverged."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from math import isfinite
from statistics import median

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short
from gradscope.recording.events import SchedulerEvent, StepEvent, only
from gradscope.recording.records import ParameterRecord, StepRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers


@dataclass(frozen=True)
class UpdateRatios:
    """The first step's norm over the weight's, of every weight matrix that gets a gradient.

    Left out are vectors, weights that are all zero, and embeddings, whose unused rows do not move.
    """

    context: RuleContext

    @cached_property
    def optimizers(self) -> Optimizers:
        """Facts on the optimizers."""
        return Optimizers(self.context)

    @cached_property
    def by_parameter(self) -> dict[int, float]:
        """The ratio of each weight matrix."""
        ratios = {}
        held = self.optimizers.targets.parameters if self.optimizers.targets else frozenset()
        for index in sorted(held):
            stat, record = (
                self.context.parameter_stat(index),
                self.context.recording.parameters[index],
            )
            if stat is None or stat.update_norm is None or not self._counts(record):
                continue
            weight = stat.weight_norm or 0.0
            if stat.gradient is not None and stat.gradient.norm > 0 and weight > 0:
                ratios[index] = stat.update_norm / weight
        return {index: ratio for index, ratio in ratios.items() if isfinite(ratio)}

    @property
    def typical(self) -> float:
        """The median over the matrices; their greatest is noisy."""
        return median(self.by_parameter.values())

    def skip_reason(self) -> str | None:
        """Return why there is no ratio."""
        skip_reason = self.optimizers.skip_reason()
        if skip_reason is not None:
            return skip_reason
        stats = self.context.first.parameter_stats.values()
        if all(stat.update_norm is None for stat in stats):
            return self.optimizers.without_update
        if self.learning_rates == {0.0}:
            return "the learning rate is 0 at this step, as at the start of a warm-up"
        return None if self.by_parameter else "no weight matrix gets a gradient"

    @cached_property
    def learning_rates(self) -> set[float]:
        """Learning rates of the parameter groups."""
        groups = () if self.optimizers.targets is None else self.optimizers.targets.groups
        return {g.learning_rate for g in groups if g.learning_rate is not None}

    @property
    def rates(self) -> str:
        """Learning rates for a message, as `(lr=0.1)`; empty if the optimizer has none."""
        rates = ", ".join(literal(rate) for rate in sorted(self.learning_rates))
        return f"(lr={rates})" if rates else ""

    def _counts(self, record: ParameterRecord) -> bool:
        # Vectors often start at 0, as biases do, or at 1, so that a ratio to them says little.
        if len(record.shape.dims) < 2 or not record.requires_grad:
            return False
        if self.context.recording.modules[record.module].class_name.startswith("Embedding"):
            return False
        node = self.context.parameter_nodes.get(record.index)
        users = () if node is None else self.context.consumers(node)
        # A table may be a plain parameter that `F.embedding` reads.
        return not any(user.operation.startswith("Embedding") for user in users)


_RATES = re.compile(r"\(lr=([-+.e\d, ]+)\)")
"""Matches the learning rates in an optimizer's description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStretch:
    """Consecutive steps of an optimizer, at the start or the end of a run."""

    series: Series
    steps: tuple[StepEvent, ...]
    is_end: bool
    highest: float
    """Largest learning rate of the optimizer in the run."""
    rate: float
    """Largest learning rate of these steps."""
    scheduler: SchedulerEvent | None
    """Call of a scheduler's `step` before these steps; None without one."""
    others_learn: bool
    """Whether another optimizer that has a learning rate steps in the same time."""

    @property
    def step_count(self) -> int:
        """Number of these steps."""
        own = {step.position for step in self.steps}
        return steps_of(one for one in self.series.windows if one.step.position in own)

    @property
    def share(self) -> float:
        """Share of the optimizer's steps, 0 to 1."""
        return self.step_count / self.series.step_count


def rate_stretches(
    context: RuleContext, is_lost: Callable[[float, float], bool]
) -> Iterator[RateStretch]:
    """Yield the first and the last steps of each optimizer that are without a learning rate.

    Args:
        context: What is judged.
        is_lost: Whether a learning rate is next to nothing, given it and the highest of the run.
    """
    windows = context.shared(Windows)
    texts = {step.index: step.optimizer for step in context.recording.steps}
    schedulers = list(only(SchedulerEvent, windows.events))
    all_rates = [
        [_rate(window.step, texts.get(window.step.step)) for window in series.windows]
        for series in windows.series
    ]
    learning = [
        series for series, rates in zip(windows.series, all_rates, strict=True) if any(rates)
    ]
    for series, rates in zip(windows.series, all_rates, strict=True):
        steps = [window.step for window in series.windows]
        known = [rate for rate in rates if rate is not None]
        if len(known) < len(steps) or not windows.requires_grad(series):
            continue
        highest = max(known, default=0.0)
        lost = [is_lost(rate, highest) for rate in known]
        for is_end in (True, False):
            count = sum(1 for _ in takewhile(bool, reversed(lost) if is_end else lost))
            # A rate of 0 in all steps, as that of a schedule that was over, is an end.
            never = count == len(steps) and not (is_end and highest == 0)
            if not count or never:
                continue
            own = steps[-count:] if is_end else steps[:count]
            before = [
                one
                for one in schedulers
                if one.optimizer in (None, *series.optimizers)
                and (not is_end or one.position < own[0].position)
            ]
            yield RateStretch(
                series=series,
                steps=tuple(own),
                is_end=is_end,
                highest=highest,
                rate=max(known[-count:] if is_end else known[:count]),
                scheduler=None if not before else before[-1 if is_end else 0],
                others_learn=any(
                    _overlap(other, series) for other in learning if other is not series
                ),
            )


def _overlap(one: Series, other: Series) -> bool:
    (first, last), (begin, end) = (
        (series.windows[0].step.position, series.windows[-1].step.position)
        for series in (one, other)
    )
    return first <= end and begin <= last


def _rate(step: StepEvent, text: str | None) -> float | None:
    """Return the largest learning rate of a step; its event has only that of the first group."""
    first = step.lr
    listed = _RATES.search(text or "")
    rates = [float(rate) for rate in listed[1].split(", ")] if listed else []
    return first if first is None or len(rates) < 2 else max(first, *rates)


_RISE = 10.0
"""Multiple of its first value that the loss does not reach while training works well."""


@dataclass(frozen=True)
class Divergence:
    """The losses and the weights of the training steps, and of the judged one after them."""

    context: RuleContext

    @cached_property
    def steps(self) -> tuple[StepRecord, ...]:
        """The steps, the judged one last; empty if nothing was trained."""
        judged = self.context.first.step
        way = [step for step in self.context.recording.steps if step.kind == "training"]
        return (*way, judged) if way and judged is not None else ()

    @cached_property
    def growths(self) -> tuple[float, ...]:
        """By optimizer step: by what share of itself the norm of a typical weight matrix grew.

        The update is at least as large: norms differ by no more than what lies between them.
        """
        by_step = self._norms()
        norms = [by_step[step.index] for step in self.steps]
        return tuple(
            median([_growth(before[index], after.get(index, 0.0)) for index in before] or [0.0])
            for before, after in pairwise(norms)
        )

    @property
    def loss_rose(self) -> bool:
        """Whether the loss has risen to a multiple, or is non-finite."""
        return rises([step.loss for step in self.steps if step.loss is not None])

    def step_beyond(self, limit: float) -> int | None:
        """Return the first optimizer step that moved the weights by more than a share of them.

        Args:
            limit: The share.

        Returns:
            Its number, from 0; None where there is none, or where the loss did not rise.
        """
        if not self.loss_rose:
            return None
        return next((step for step, growth in enumerate(self.growths) if growth >= limit), None)

    @property
    def loss_text(self) -> str:
        """First and last loss, and the number of steps between."""
        losses = [step.loss for step in self.steps if step.loss is not None]
        count = len(self.steps) - 1
        plural = "" if count == 1 else "s"
        ends = f"from {short(losses[0], 4)} to {short(losses[-1], 4)}"
        return f"the loss goes {ends} in {count} step{plural}"

    def _norms(self) -> dict[int, dict[int, float]]:
        """Return by step the norms of the weight matrices that are not zero, as it found them."""
        parameters = self.context.recording.parameters
        found: dict[int, dict[int, float]] = {step.index: {} for step in self.steps}
        for stat in self.context.recording.parameter_stats:
            parameter = parameters[stat.parameter]
            is_trained_matrix = len(parameter.shape.dims) > 1 and parameter.requires_grad
            if stat.step in found and stat.weight_norm and is_trained_matrix:
                found[stat.step][stat.parameter] = stat.weight_norm
        return found


def rises(losses: Sequence[float]) -> bool:
    """Return whether losses rise to a multiple of the first, or become non-finite."""
    first, *later = losses or [0.0]
    return math.isfinite(first) and (
        rises_by(losses, _RISE) or not all(math.isfinite(loss) for loss in later)
    )


def rises_by(losses: Sequence[float], times: float) -> bool:
    """Return whether a loss that is a number lies above so many times the first one.

    A loss below 0 rises as far as its size tells: one that goes from -1 to -20 falls.
    """
    first, *later = losses or [0.0]
    # For a positive loss, this is its multiple. A loss near 0 needs a minimum, since any noise is a
    # multiple of 0.
    limit = first + (times - 1) * max(abs(first), 1e-6)
    return any(math.isfinite(loss) and loss > limit for loss in later)


_SPREADS, _LASTING_SPREADS = 6.0, 3.0
"""Spreads of a step's loss by which its highest value, and its median, lie above where it began."""
_LEAST_CHANGES = 4
"""Minimum number of changes of a loss that tell its spread."""


def rises_beyond_noise(losses: Sequence[float], before: Sequence[float]) -> bool:
    """Return whether losses rise, as `rises` has it, by more than batches make them vary.

    A small batch may have a loss of a tenth of the usual one, and the next one the usual again.

    Args:
        losses: The loss that is judged, then those of later steps.
        before: Losses of the last steps before; a first loss below their median counts as that.
    """
    first, *later = losses or [0.0]
    if not rises(losses) or not all(map(math.isfinite, later)):
        return rises(losses)
    known = [loss for loss in before if math.isfinite(loss)]
    start = max(first, median(known)) if known else first
    if not rises([start, *later]):
        return False
    # The spread is that of logarithms, which a loss that is not positive does not have.
    if min(start, *losses) <= 0:
        return True
    spread = _spread([math.log(loss) for loss in losses])
    highest, usual = (math.log(of / start) for of in (max(later), median(later)))
    # A single high value must exceed the noise by far; where most values are high, less is enough.
    return highest > _SPREADS * spread or usual > max(math.log(_RISE), _LASTING_SPREADS * spread)


_JUMP, _NEAR_START, _LEAST_LOSSES = 1.5, 0.98, 30
"""Multiple of its first value to which a loss jumps that is driven off by the first steps; share of
it below which a loss has come down at last; number of losses that tell it.
"""


def stays_up(losses: Sequence[float]) -> bool:
    """Return whether the first steps of a training drive its loss up, and it never comes down.

    The jump must exceed how much the last losses vary, by less if these lie well above the start.
    Then neither a small first batch nor a loss that is meant to stay, as an adversary's, counts.

    Args:
        losses: All losses of a training, in order.
    """
    if len(losses) < _LEAST_LOSSES or not all(map(math.isfinite, losses)) or min(losses) <= 0:
        return False
    # The last third shows where the loss stays, after any warm-up.
    first, last = losses[0], losses[2 * len(losses) // 3 :]
    later = sorted(losses[1:])
    highest, low = max(losses[1 : _SOON + 1]), later[len(later) // 4]
    if highest <= _JUMP * first or min(low, median(last)) < _NEAR_START * first:
        return False
    spreads = _SPREADS if median(last) < _WELL_ABOVE * first else _FEWER_SPREADS
    return math.log(highest / first) > spreads * _spread([math.log(loss) for loss in last])


_SOON, _WELL_ABOVE, _FEWER_SPREADS = 20, 1.25, 4.5
"""Number of first steps within which a loss jumps; the multiple of its start that its last values
reach if they are well above; and the spreads that the jump must exceed then.
"""


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation of values around their course; 0 if there are too few.

    It is that of the middle half of their changes, which neither a trend nor a few jumps change.
    """
    changes = [after - before for before, after in pairwise(values)]
    if len(changes) < _LEAST_CHANGES:
        return 0.0
    usual = median(changes)
    # A change is the difference of two values, so its deviation is the square root of 2 times
    # theirs.
    return 1.4826 * median(abs(change - usual) for change in changes) / math.sqrt(2)


def _growth(before: float, after: float) -> float:
    # A weight that is not finite has grown without limit, also where it became NaN.
    return (after - before) / before if math.isfinite(after) else math.inf
