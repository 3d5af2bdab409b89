"""GS320: losses that are divided by the number of micro-batches twice."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Window
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.accumulation.scaled_without_accumulation import scaling_sites
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, by_line
from gradscope.rules.helpers.leftovers import Accumulation, accumulations, is_mean
from gradscope.rules.rule import Rule

_LEAST = 3
"""Smallest number of micro-batches that is judged: the mean of two losses over two is no mistake.
"""


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
        judged = accumulation.series.step_count
        windows = tuple(filter(_is_divided_twice, accumulation.windows))
        context.measured_share(
            self.code,
            "share_of_steps",
            steps_of(windows),
            judged,
            self.share,
            subject=accumulation.series.name,
        )
        if not windows or steps_of(windows) < self.share * judged:
            return None
        return AffectedWindows(series=accumulation.series, windows=windows, judged=judged)


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
