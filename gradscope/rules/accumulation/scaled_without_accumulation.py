"""GS313: losses that are divided for an accumulation that never happens."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, Group, by_line
from gradscope.rules.helpers.leftovers import is_mean
from gradscope.rules.rule import Rule

_LEAST_DIVISOR = 3
"""Number of micro-batches from which on steps after all but one differ from steps after each two.
"""
_SCALINGS = frozenset({"DivBackward0", "MulBackward0"})
_SPEAKS_OF_IT = re.compile(r"accum|grad_?acc|micro", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledWithoutAccumulation(Rule):
    """The loss is divided by the number of micro-batches, but every micro-batch steps.

    What it finds:
        `(loss / k).backward()` as in gradient accumulation, but with `optimizer.step()` after each
        micro-batch, for example because of wrong indentation. Or after each but the kth, because
        `if (i + 1) % k:` lacks `== 0`.

    Why it matters:
        With SGD the effective learning rate is 1/k of the configured one. With every optimizer the
        batch of a step is 1/k of the intended one.

    How it is measured:
        Nearly all steps of an optimizer have one pass, from one line, of a mean loss divided by the
        same integer k. In addition, gradients are zeroed only every kth step, or the line of the
        backward, or that of the division in a captured step, mentions accumulation.

        It is an error if, from the second step on, each step has one pass, but every (k - 1)th has
        two, for a k of at least 3, in `share` of at least `least_periods` such periods: then all
        micro-batches but the kth make a step.

    How to fix it:
        Step and zero after every k-th micro-batch, or do not divide the loss.

    When it may be wrong:
        If the loss has a weight of 1/k that is unrelated to accumulation.

    Source:
        Chosen: a division alone is no evidence, since loss weights are common.
    """

    code: ClassVar[str] = "GS313"
    name: ClassVar[str] = "scaled-without-accumulation"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "accumulation"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS301",)

    share: float = 0.9
    """Share of an optimizer's steps with one pass of such a loss, 0 to 1. Chosen: nearly all."""

    least_periods: int = 2
    """Number of periods of k micro-batches that are needed. Chosen: one may be chance."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that divides for nothing."""
        divisors: dict[tuple[int, ...], int] = {}
        each, all_but_one = [], []
        for series in context.shared(Windows).series:
            skipping = self._skipping(series)
            found, divisor = self._affected(context, series) if skipping is None else skipping
            divisors[series.optimizers] = divisor
            if found is not None and skipping is not None:
                all_but_one.append(found)
            elif found is not None and _is_meant(context, found, divisor):
                each.append(found)
        for affected, is_each in ((each, True), (all_but_one, False)):
            for group in by_line(affected, lambda window: window.passes[-1].site):
                divisor = divisors[group.affected[0].series.optimizers]
                yield self._finding(context, group, divisor, is_each=is_each)

    def _finding(
        self, context: RuleContext, group: Group, divisor: int, *, is_each: bool
    ) -> Finding:
        how = (
            f"every micro-batch makes its own step, in {group.text}"
            if is_each
            else f"{divisor - 1} of {divisor} micro-batches make a step of their own, and only the "
            f"last of them does not"
        )
        after = f"every {divisor} micro-batches" + ("" if is_each else ": `if (i + 1) % k == 0:`")
        return self.finding(
            context,
            message=f"the loss is divided by {divisor}, but {how}",
            remedy=f"step and zero after {after}, or do not divide",
            site=group.site if is_each else group.first.step.site,
            related=(
                context.related(group.first.step.site, "the step after each of them")
                if is_each
                else context.related(group.site, "the backward of each micro-batch"),
            ),
            severity="warning" if is_each else "error",
            parameters=group.parameters,
            evidence={
                "loss_divided_by": divisor,
                "passes_each_step": 1,
                "steps_concerned": group.step_count,
                "steps": group.judged,
            },
            count=group.step_count,
            step=group.first.step.step,
        )

    def _skipping(self, series: Series) -> tuple[AffectedWindows, int] | None:
        """Return the steps after all micro-batches but the kth, and k, None if it is not so."""
        windows = series.windows
        # A long run is thinned out: a period of k can only be read off from consecutive steps that
        # are all there.
        if any(one.count > 1 or one.resumes for one in windows[1:]):
            windows = tuple(takewhile(lambda one: one.count == 1 and not one.resumes, windows[1:]))
        else:
            windows = windows[1:]
        divisors = {_divisor(event.divided) for one in windows for event in one.passes}
        sites = {event.site for one in windows for event in one.passes}
        # Several losses have weights of their own. Only one line that always divides by the same
        # number accumulates.
        if len(divisors) != 1 or len(sites) != 1:
            return None
        divisor = next(iter(divisors))
        sizes = [len(one.passes) for one in windows]
        # `if (i + 1) % k:` steps after k - 1 of k micro-batches; the one that does not step feeds
        # the first step of the next period.
        period = divisor - 1
        if divisor < _LEAST_DIVISOR or len(sizes) < self.least_periods * period:
            return None
        # The epoch may have begun anywhere in the period before the first window that is judged.
        if not any(self._alternates(sizes[start:], period) for start in range(period)):
            return None
        if not all(is_mean(one.passes) for one in windows):
            return None
        return AffectedWindows(series=series, windows=windows, judged=series.step_count), divisor

    def _alternates(self, sizes: list[int], period: int) -> bool:
        """Tell whether the first step of each period has two passes, and the others have one.

        The share counts for both kinds of steps apart: where no step has two passes, those of one
        pass must not hide it, as they would for a long period.
        """
        double, single = sizes[::period], [n for at, n in enumerate(sizes) if at % period]
        return sum(size == 2 for size in double) >= max(
            self.least_periods, self.share * len(double)
        ) and sum(size == 1 for size in single) >= self.share * len(single)

    def _affected(self, context: RuleContext, series: Series) -> tuple[AffectedWindows | None, int]:
        """Return the steps with one pass of a divided loss, and the divisor."""
        windows = [
            window
            for window in series.windows
            # All passes since the last step count, not only those that feed this one: with an
            # attack or another network's loss, one pass a step says nothing of the loop.
            if sum(isinstance(event, BackwardEvent) for event in window.events) == 1
            and is_mean(window.passes)
            and _divisor(window.passes[-1].divided) > 1
        ]
        context.measured_share(
            self.code,
            "share_of_steps",
            steps_of(windows),
            series.step_count,
            self.share,
            subject=series.name,
        )
        divisors = Counter(_divisor(window.passes[-1].divided) for window in windows)
        sites = {window.passes[-1].site for window in windows}
        if len(divisors) != 1 or len(sites) != 1 or steps_of(windows) < 2:
            return None, 1
        if steps_of(windows) < self.share * series.step_count:
            return None, 1
        judged = series.step_count
        return AffectedWindows(series=series, windows=tuple(windows), judged=judged), next(
            iter(divisors)
        )


def _divisor(value: float | None) -> int:
    """Return the integer divisor, 1 without one."""
    if value is None or not math.isfinite(value):  # as of a loss multiplied by NaN, or by zero
        return 1
    whole = round(value)
    # A weight such as 0.3 divides by 3.33 and is meant as a weight; float32 rounds a division by k
    # by less than 1e-6.
    return whole if abs(value - whole) < 1e-6 * whole else 1


def _is_meant(context: RuleContext, one_affected: AffectedWindows, divisor: int) -> bool:
    """Return whether the division was there for an accumulation."""
    site = context.site(one_affected.windows[0].passes[-1].site)
    if site is not None and _SPEAKS_OF_IT.search(site.source):
        return True
    if site is not None and any(map(_SPEAKS_OF_IT.search, _divisions(context, site))):
        return True
    windows = enumerate(one_affected.series.windows)
    # Zeroing every kth step is what accumulation does, so the division was meant for it. Any other
    # distance says nothing on k.
    fresh = [position for position, one in windows if not one.reuses_gradients]
    distances = {later - sooner for sooner, later in pairwise(fresh)}
    return distances == {divisor}


def _divisions(context: RuleContext, backward: Site) -> Iterator[str]:
    """Yield the lines of a function that divide or multiply a loss in captured steps."""
    for site in scaling_sites(context):
        # A division elsewhere, such as the scale of an attention, has nothing to do with this loss.
        if (site.file, site.function) == (backward.file, backward.function):
            yield site.source


def scaling_sites(context: RuleContext) -> Iterator[Site]:
    """Yield the lines that divide or multiply in captured steps, outside of any module."""
    for captured in context.recording.captured_steps:
        records = captured.recording
        for node in records.nodes:
            # Within a module it is part of the forward: a loss is divided in the loop. `loss * (1 /
            # k)` divides, too.
            is_scaling = node.operation in _SCALINGS and node.module_call is None
            if is_scaling and node.site is not None:
                yield records.sites[node.site]
