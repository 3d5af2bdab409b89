"""GS318: optimizer steps that leave every weight as it was."""

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import (
    BackwardEvent,
    DroppedUpdateEvent,
    ReplacedWeightsEvent,
    StepEvent,
    only,
)
from gradscope.recording.evidence.ranks import RankEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.norm_table import norms_of
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_ROUNDED = frozenset({"bfloat16", "float16"})
"""Dtypes in which rounding loses small updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step whose update was measured."""

    step: int
    rate: float
    """Learning rate of the step."""
    norm: float
    """Norm of the gradients."""
    update: float
    """Norm of the update."""
    weights: Mapping[int, float]
    """Norm of the weights before the step, by parameter."""


_SWITCH = re.compile(r"switch|update_model", re.IGNORECASE)
"""Names of code that means training to go on from an average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWithoutEffect(Rule):
    """The optimizer has gradients and a learning rate, but its steps change no weight.

    What it finds:
        Optimizers whose `step` computes an update and does not store it, such as
        `p.add(update)` in place of `p.add_(update)`, or `p = p - lr * p.grad`, which assigns to a
        local name; and loops without an optimizer that update their weights so. Besides, a moving
        average of the weights that replaces them for an evaluation and stays; trained weights
        that a moving average pulls back to where they began, because it was exchanged with them;
        and weights that a broadcast from another rank overwrites after each step.

    Why it matters:
        Nothing is trained. No exception is raised, and the loss varies with the batches as if
        training were only slow.

    How it is measured:
        Updates are measured in the first three steps of an optimizer and in every tenth. The
        finding needs `least_steps` measured steps with a gradient. In all of them the update of
        every parameter is zero, bit for bit, and from one to the next no norm of a weight differs.
        The learning rate is above zero, and a step of SGD would be `least_ratio` of the weights or
        more. Half-precision weights, which lose small updates by rounding, are skipped. Where a
        script has no optimizer, makes `least_passes` backward passes and changes no weight, its
        source is searched for a loop that reads gradients and assigns a sum or difference to its
        own variable, or drops the result of a method such as `p.sub(update)`. On a CPU, the first
        16 elements of a bias are compared with what the last step left. Other numbers are an
        average if each lies between earlier ones, and if they are none of these, nor lie on the
        line from where the weights were set last, as with Lookahead and Reptile. It is found if
        nothing but averages comes between steps, `least_times` at least and at most in `most_share`
        of the steps. Weights are pulled back if nine of ten steps, of `least_passes` at least, are
        followed by a move along the line to the weights before the first step. A broadcast of
        weights undoes steps if after as many of them the weights before the step are back.

    How to fix it:
        Write to the parameter in place under `torch.no_grad()`: `p.add_(update, alpha=-lr)`. Where
        each rank steps a part of the weights, broadcast each part from the rank that steps it.

    When it may be wrong:
        If the optimizer only represents one that steps elsewhere, such as on another device; if
        training is meant to go on from the average, as with switch EMA. It is a note where the line
        or its function has a name such as `switch` or `update_model_with_ema`.

    Source:
        torch source, `torch.optim`: steps write to parameters in place.
        aqlaboratory/openfold pull request 90 and PKU-YuanGroup/Open-Sora-Plan issue 186: averaged
        weights that were never put back.
        Measured: in 90 steps of two such optimizers every measured update is 0 exactly; the
        smallest of their healthy twins is 0.002 of the weights.
    """

    code: ClassVar[str] = "GS318"
    name: ClassVar[str] = "step-without-effect"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109", "GS110")

    least_steps: int = 3
    """Number of steps with a measured update. Chosen: some optimizers only collect statistics in
    the first steps.
    """
    least_ratio: float = 1e-6
    """Learning rate times gradient norm, over the norm of the weights. Below 6e-8, float32 rounds
    an update away. Chosen: with a margin."""

    least_passes: int = 16
    """Number of backward passes of a script without any step. Chosen, as in GS307."""

    least_times: int = 2
    """Number of times that an average replaces the weights. Chosen: once, the second half of a
    training may start from it.
    """
    most_share: float = 0.5
    """Share of the steps, 0 to 1, before which an average replaces the weights. Chosen: more often,
    it is part of the method.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        norms = norms_of(context.recording)
        # As `update >= 0` of each, of a million of them.
        if any(map((0.0).__le__, norms.updates)) or any(_dropped(context)):
            return None
        if any(only(ReplacedWeightsEvent, context.shared(Windows).events)):
            return None
        return "how far the steps moved the weights was not measured"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that moves nothing."""
        for dropped in _dropped(context):
            yield from self._without_step(context, dropped)
        for replaced in only(ReplacedWeightsEvent, context.shared(Windows).events):
            yield from self._undone(context, replaced)
        for series in context.shared(Windows).series:
            measured = self._judged(context, series)
            if not measured:
                continue
            largest = max(one.update for one in measured)
            context.measured(
                self.code, "largest_update", largest, 0.0, fires="below", subject=series.name
            )
            if largest == 0 and len(measured) >= self.least_steps and _stands_still(measured):
                yield self._finding(context, series, measured)

    def _without_step(self, context: RuleContext, dropped: DroppedUpdateEvent) -> Iterator[Finding]:
        """Yield a finding for a loop that makes no step at all, though it has a line for that."""
        events = context.shared(Windows).events
        passes = sum(one.reached > 0 for one in only(BackwardEvent, events))
        context.measured(self.code, "passes", passes, self.least_passes)
        if passes < self.least_passes:
            return
        yield self.finding(
            context,
            message=(
                f"this update changes no weight: it is not stored, and in {passes:,} backward "
                "passes nothing else steps"
            ),
            remedy="write to the parameters in place: p.sub_(update), or p -= update",
            site=dropped.site,
            evidence={"backward_passes": passes, "limit": self.least_passes, "steps": 0},
            count=passes,
            step=dropped.step,
        )

    def _undone(self, context: RuleContext, replaced: ReplacedWeightsEvent) -> Iterator[Finding]:
        """Yield a finding for steps that an average, a pull back or a broadcast undoes."""
        if replaced.undone:
            yield from self._overwritten(context, replaced)
            return
        if replaced.pulled:
            if replaced.steps >= self.least_passes:
                yield self._pulled(context, replaced)
            return
        most = self.most_share * replaced.steps
        context.measured(self.code, "times", replaced.times, self.least_times)
        if not self.least_times <= replaced.times <= most:
            return
        site = context.site(replaced.site)
        is_meant = site is not None and bool(_SWITCH.search(f"{site.function} {site.source}"))
        yield self.finding(
            context,
            message=(
                f"an average of earlier weights replaced the weights {replaced.times:,} times in "
                f"{replaced.steps:,} steps, and training goes on from it: it undoes the last steps"
            ),
            remedy="keep a copy of the weights, and put it back after the evaluation",
            site=replaced.site,
            severity="note" if is_meant else None,
            evidence={
                "times": replaced.times,
                "limit": self.least_times,
                "steps": replaced.steps,
            },
            count=replaced.times,
            step=replaced.step,
        )

    def _overwritten(
        self, context: RuleContext, replaced: ReplacedWeightsEvent
    ) -> Iterator[Finding]:
        """Yield a finding for steps that a broadcast of the weights undoes.

        Without one, weights may be put back on purpose, to adapt to each batch anew.
        """
        sent = [
            one
            for one in context.recording.evidence_of(RankEvent)
            if one.kind == "weight-reduced" and one.subject == "broadcast" and one.step <= 1
        ]
        if not sent or replaced.steps < self.least_passes:
            return
        yield self.finding(
            context,
            message=(
                f"a broadcast overwrites what the optimizer has stepped: after {replaced.undone:,} "
                f"of {replaced.steps:,} steps the weights are those of before the step"
            ),
            remedy="broadcast each weight from the rank that steps it: src=owner",
            site=sent[0].site,
            evidence={"times": replaced.undone, "steps": replaced.steps},
            count=replaced.undone,
            step=replaced.step,
            explains=("GS205",),
        )

    def _pulled(self, context: RuleContext, replaced: ReplacedWeightsEvent) -> Finding:
        return self.finding(
            context,
            message=(
                f"after {replaced.pulled:,} of {replaced.steps:,} steps the trained weights are "
                "moved back towards their initial values, as if they were the moving average"
            ),
            remedy="exchange the two: the average has to follow the trained weights",
            site=replaced.site,
            evidence={"times": replaced.pulled, "steps": replaced.steps},
            count=replaced.pulled,
            step=replaced.step,
        )

    def _judged(self, context: RuleContext, series: Series) -> list[_Step]:
        """Return the steps that should have moved the weights, up to the first that has."""
        found: list[_Step] = []
        for one in _steps(context, series):
            size = max(one.weights.values(), default=0.0)
            # Adaptive optimizers normalise the gradient, so that their update is about the learning
            # rate, whatever the norm.
            expected = one.rate * one.norm if series.family == "sgd" else one.rate
            if one.rate > 0 and isfinite(one.norm) and expected >= self.least_ratio * max(size, 1):
                found.append(one)
            # One step that moves weights clears the optimizer, so later ones need no judgement.
            if found and found[-1].update:
                break
        return found

    def _finding(self, context: RuleContext, series: Series, measured: list[_Step]) -> Finding:
        first = measured[0]
        window = next(one for one in series.windows if one.step.step == first.step)
        record = series.record
        class_name = "the update" if record is None else record.class_name
        return self.finding(
            context,
            message=(
                f"{class_name} changes no weight: all are bit-identical after each of "
                f"{len(measured)} measured steps, with a gradient norm of {short(first.norm)} "
                f"and a "
                f"learning rate of {short(first.rate, 6)}"
            ),
            remedy="write to the parameters in place in step(): p.add_(update, alpha=-lr)",
            site=window.step.site,
            related=(context.related(None if record is None else record.site, "the optimizer"),),
            parameters=series.parameters,
            evidence={
                "largest_update": 0.0,
                "gradient_norm": first.norm,
                "learning_rate": first.rate,
                "steps_measured": len(measured),
                "steps": series.step_count,
            },
            count=series.step_count,
            step=first.step,
        )


def _dropped(context: RuleContext) -> Iterator[DroppedUpdateEvent]:
    """Yield the line of an update that is not stored, of a run in which nothing steps."""
    events = context.shared(Windows).events
    if not any(isinstance(one, StepEvent) for one in events):
        yield from only(DroppedUpdateEvent, events)


def _steps(context: RuleContext, series: Series) -> Iterator[_Step]:
    """Yield the steps with a measured update of every parameter with a gradient."""
    norms = norms_of(context.recording)
    records = context.recording.parameters
    held = frozenset(series.parameters)
    if any(records[index].shape.dtype in _ROUNDED for index in held):
        return
    for window in series.windows:
        every = norms.rows_of(window.step.step)
        rate = window.step.lr
        if rate is None or max(norms.updates[every.start : every.stop], default=-1.0) < 0:
            continue  # as in nine steps of ten
        rows = [row for row in every if norms.parameters[row] in held]
        moving = [row for row in rows if norms.gradients[row] > 0]
        # A step that the script makes by hand is itself the change of the weights, so it cannot
        # lack one.
        if window.step.manual or not moving:
            continue
        # An update below zero stands for one that was not measured; only a step measured as a whole
        # can be a standstill.
        if all(norms.updates[row] >= 0 for row in moving):
            yield _Step(
                step=window.step.step,
                rate=rate,
                norm=max(norms.gradients[row] for row in moving),
                update=max(norms.updates[row] for row in moving),
                weights={norms.parameters[row]: norms.weights[row] for row in rows},
            )


def _stands_still(measured: list[_Step]) -> bool:
    """Return whether the weights are the same in all measured steps.

    An optimizer that steps at every k-th call, or stands for another one, moves them in between.
    """
    first = measured[0].weights
    return all(one.weights == first for one in measured)
