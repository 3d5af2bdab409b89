"""GS303 and GS320: losses that accumulate without a divisor, or that are divided twice."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Window
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.accumulation.scaled_without_accumulation import scaling_sites
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.affected_windows import AffectedWindows, by_line
from gradscope.rules.helpers.leftovers import Accumulation, accumulations, is_mean
from gradscope.rules.rule import Rule

_LEAST = 3
"""Smallest number of micro-batches that is judged: the mean of two losses over two is no mistake.
"""


def _affected(
    rule: Rule,
    context: RuleContext,
    accumulation: Accumulation,
    windows: tuple[Window, ...],
    share: float,
) -> AffectedWindows | None:
    """Note the share of steps that show a mistake; return them if they are enough."""
    judged = accumulation.series.step_count
    name = accumulation.series.name
    context.measured_share(
        rule.code, "share_of_steps", steps_of(windows), judged, share, subject=name
    )
    if not windows or steps_of(windows) < share * judged:
        return None
    return AffectedWindows(series=accumulation.series, windows=windows, judged=judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscaledAccumulation(Rule):
    """Gradients of several micro-batches are added up although each loss is a mean.

    What it finds:
        Gradient accumulation over k micro-batches whose loss is not divided by k.

    Why it matters:
        With SGD each step is k times as large as that of a single batch of the same size: the
        learning rate is silently multiplied by k. Adam and similar optimizers cancel the factor,
        but it changes clipping and weight decay that is part of the gradient.

    How it is measured:
        A step counts if all backward passes that feed it come from one line, reach the same
        parameters and start from an undivided mean loss, and if the script does not write to the
        gradients. A sum that is divided by its number of rows or elements, as in
        `kl_div(reduction="batchmean")`, is a mean. A constant factor above 1 is no division. The
        rule reports at least `share` of an optimizer's steps, nearly all with the same number of
        passes: a warning for SGD, a note for other optimizers, most of which are scale-free.

    How to fix it:
        Divide the loss by the number of micro-batches before `backward()`, or use a loss that is a
        sum and divide by the number of rows or tokens in all of them.

    Fix safety:
        Safe. `loss.backward()` becomes `(loss / k).backward()`, with the number that the code
        itself uses for the window. A clip keeps its limit, which then applies to the mean. No edit
        if the code does not say how many micro-batches make a step.

    When it may be wrong:
        If the sum is intended: over several tasks in a loop, or if the learning rate was chosen for
        it.

    Source:
        Measured: with k from 2 to 16 the sum over the right gradient is k exactly. karpathy/nanoGPT
        issue 168; fastai issue 3023.
    """

    code: ClassVar[str] = "GS303"
    name: ClassVar[str] = "unscaled-accumulation"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "accumulation"
    needs_run: ClassVar[bool] = True
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.losses")

    share: float = 0.5
    """Share of an optimizer's steps, 0 to 1. Chosen: most steps."""
    even_share: float = 0.7
    """Share of these steps with the same number of passes, 0 to 1. Chosen: the last windows of
    short epochs have fewer. If the number varies, as over parts of a sample, no accumulation is
    intended.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that accumulates without dividing."""
        found = {one.series.optimizers: one for one in context.shared(accumulations)}
        affected = [s for one in found.values() if (s := self._affected(context, one)) is not None]
        for group in by_line(affected, lambda window: window.passes[-1].site):
            accumulation = found[group.affected[0].series.optimizers]
            passes = accumulation.passes
            is_sgd = any(one.series.family == "sgd" for one in group.affected)
            yield self.finding(
                context,
                message=(
                    f"the gradients of {passes} micro-batches are added up although each loss is a "
                    f"mean: {_effect(accumulation)}"
                ),
                remedy=f"divide the loss by {passes} before backward()",
                site=group.site,
                related=(context.related(group.first.step.site, "the step that uses the sum"),),
                severity="warning" if is_sgd else "note",
                parameters=group.parameters,
                evidence={
                    "passes": passes,
                    "steps_concerned": group.step_count,
                    "steps": group.judged,
                },
                count=group.step_count,
                step=group.first.step.step,
            )

    def _affected(self, context: RuleContext, accumulation: Accumulation) -> AffectedWindows | None:
        windows = tuple(filter(_is_sum_of_means, accumulation.windows))
        whole = [window for window in windows if len(window.passes) == accumulation.passes]
        found = _affected(self, context, accumulation, windows, self.share)
        is_even = steps_of(whole) >= self.even_share * steps_of(windows)
        return found if is_even else None


def _is_sum_of_means(window: Window) -> bool:
    is_divided = any(_is_divided(one) for one in window.passes)
    is_written = window.step.written > 0  # the script may have divided the gradients
    return is_mean(window.passes) and not is_divided and not is_written


def _is_divided(one: BackwardEvent) -> bool:
    """Return whether anything except constants above 1 scales the loss."""
    return abs((one.divided or 1) * (one.multiplied or 1) - 1) > 1e-6


def _effect(accumulation: Accumulation) -> str:
    family, passes = accumulation.series.family, accumulation.passes
    if family == "sgd":
        return f"each step is {passes} times as large as a step over the whole batch"
    record = accumulation.series.record
    name = "the optimizer" if record is None else record.class_name
    do = "do" if family == "adaptive" else "may"
    return f"the steps of {name} {do} not depend on it, but clipping does"


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedTwice(Rule):
    """The loss is divided by the number of micro-batches twice.

    What it finds:
        Gradient accumulation over k micro-batches whose loss is divided by k in the script and by k
        again in a library: `accelerator.backward()`, Lightning's `accumulate_grad_batches` and
        transformers' `Trainer` divide already.

    Why it matters:
        With SGD each step is 1/k of that of a single batch of the same size: the learning rate is
        silently divided by k. Adam and similar optimizers cancel the factor, but it changes
        clipping and weight decay that is part of the gradient.

    How it is measured:
        A step counts if k backward passes of one line feed it, and each starts from a mean loss
        that constants together divide by k times k. The rule reports at least `share` of an
        optimizer's steps, with k of three or more: a warning for SGD, a note for other optimizers,
        most of which are scale-free.

    How to fix it:
        Remove the division from the script, if a library accumulates for it.

    When it may be wrong:
        If the loss has a weight of 1/k of its own.

    Source:
        Accelerate documentation, "Performing gradient accumulation": `backward()` divides.
    """

    code: ClassVar[str] = "GS320"
    name: ClassVar[str] = "divided-twice"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    share: float = 0.5
    """Share of an optimizer's steps, 0 to 1. Chosen: most steps."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that divides what is divided already."""
        found = {one.series.optimizers: one for one in context.shared(accumulations)}
        affected = [s for one in found.values() if (s := self._affected(context, one)) is not None]
        for group in by_line(affected, lambda window: window.passes[-1].site):
            passes = found[group.affected[0].series.optimizers].passes
            # Optimizers of several families may share a backward: one that the factor slows down is
            # enough.
            is_sgd = any(one.series.family == "sgd" for one in group.affected)
            division = _division(context, group.site)
            yield self.finding(
                context,
                message=(
                    f"the loss is divided by {passes} twice: the gradients of {passes} "
                    f"micro-batches add up to 1/{passes} of those of the whole batch"
                ),
                remedy="divide once: leave it to the library that accumulates, or to the script",
                site=division or group.site,
                related=(
                    context.related(group.site if division else None, "the backward"),
                    context.related(group.first.step.site, "the step that uses the sum"),
                ),
                severity="warning" if is_sgd else "note",
                parameters=group.parameters,
                evidence={
                    "loss_divided_by": passes * passes,
                    "passes": passes,
                    "steps_concerned": group.step_count,
                    "steps": group.judged,
                },
                count=group.step_count,
                step=group.first.step.step,
            )

    def _affected(self, context: RuleContext, accumulation: Accumulation) -> AffectedWindows | None:
        windows = tuple(filter(_is_divided_twice, accumulation.windows))
        return _affected(self, context, accumulation, windows, self.share)


def _is_divided_twice(window: Window) -> bool:
    passes = len(window.passes)
    is_written = window.step.written > 0  # the script may have multiplied the gradients
    # Two divisions in float32 differ from the square by rounding alone. The shorter last window of
    # an epoch still divides by the full one and does not count.
    is_squared = all(abs((one.divided or 1) / passes**2 - 1) < 1e-6 for one in window.passes)
    return passes >= _LEAST and is_mean(window.passes) and is_squared and not is_written


def _division(context: RuleContext, backward: int | None) -> Site | None:
    """Return the only other line of the backward's file that scales a loss in captured steps."""
    known = context.site(backward)
    if known is None:
        return None
    # The library's own division has a line in an installed file. Several lines of the script may
    # weigh other terms, and the wrong one would be named.
    lines = {site for site in scaling_sites(context) if site.file == known.file} - {known}
    return lines.pop() if len(lines) == 1 else None
