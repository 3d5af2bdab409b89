"""GS109: steps that hardly move the weights."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.training import ArgumentKind, OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.updates import RateStretch, UpdateRatios, rate_stretches
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Lasting, Rule

_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTooSmall(Rule):
    """One optimizer step hardly changes the weights.

    What it finds:
        A learning rate that is too small for the gradients of this model and batch. Also a learning
        rate that a schedule holds near zero for many steps at the start or the end of a run, such
        as a schedule for epochs that is stepped with every batch, or one that was finished when the
        run resumed.

    Why it matters:
        Below about 1e-7 of the weight, float32 rounds a step away and nothing changes. Above that,
        learning takes proportionally more steps.

    How it is measured:
        For every weight matrix that gets a gradient, the norm of the first step's change over the
        norm of the weight. The median over the matrices is judged. With momentum it is divided by
        one minus the momentum, because steps in the same direction add up. If even the largest
        ratio is below `lost`, it is a warning for every optimizer. For SGD, a median below
        `sgd_note` is a note. A parameter group is judged by itself if its learning rate is above 0
        and below `group_rate` of the highest: if even its largest ratio is below `lost`, it is a
        warning. The rule skips learning rates that a scheduler holds below their initial value,
        and weights in half precision.

        In a run, the learning rates of each optimizer's steps are judged as well: if those of its
        last `stretch_share`, `stretch_steps` at least, are below `rest` of the highest, it is a
        warning, and an error if they are exactly 0. It is a warning if those of its first
        `stretch_steps` or more are exactly 0, or all of them. That is an error if a scheduler
        starts from another rate, as after a state was loaded whose schedule was over. Beside
        another optimizer that learns, it may be a part that starts later, and is left alone.

    How to fix it:
        Raise the learning rate, or look for what makes the gradients so small: a loss that is
        divided twice, a mean over too much.

    When it may be wrong:
        Fine-tuning with SGD and intentionally tiny steps.

    Source:
        Measured: of 4,540 runs, 3 % of those by SGD with a ratio below 0.0001 learned anything in
        250 steps, 19 % up to 0.0003, 54 % up to 0.001. The spacing of float32 is 6e-8 to 1.2e-7.
        Measured: the usual schedules (linear, cosine, one cycle, polynomial, three decays by 10)
        are below 1e-5 of their highest rate for at most 1 % of their steps.
    """

    code: ClassVar[str] = "GS109"
    name: ClassVar[str] = "update-too-small"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "learning rate"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "always"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="update_ratio", worse="lower"),)

    lost: float = 1e-7
    """Ratio below which float32 rounds the update away. Source: its spacing."""
    sgd_note: float = 1e-4
    """Ratio for SGD. Measured: 3 % learn in 250 steps."""
    group_rate: float = 1e-6
    """Share of the highest learning rate of the groups. Chosen: layer-wise decays end at 1e-4."""
    rest: float = 1e-5
    """Share of the highest learning rate of a run. Source: usual schedules end at 1e-3 or more, or
    go below that only in their last steps.
    """
    stretch_steps: int = 8
    """Number of consecutive steps. Chosen: more than a warm-up from 0 has below the limit."""
    stretch_share: float = 0.2
    """Share of an optimizer's steps, 0 to 1. Measured: usual schedules have 0.01 at most."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        ratios = UpdateRatios(context)
        skip_reason = ratios.skip_reason()
        if skip_reason is not None:
            return skip_reason
        optimizer = ratios.optimizers.targets
        groups = () if optimizer is None else optimizer.groups
        if any((g.learning_rate or 0.0) < (g.initial_learning_rate or 0.0) for g in groups):
            return "a scheduler holds the learning rate below its initial one"
        highest = None if context.run is None else context.run.highest_rate
        # A warm-up begins with small steps.
        if highest and max(ratios.learning_rates, default=highest) < highest / 2:
            return "the learning rate is below half of its later value"
        if optimizer is not None and not optimizer.is_torchs and ratios.typical == 0:
            return "the first step of an optimizer outside torch changed nothing"
        types = {context.recording.parameters[index].shape.dtype for index in ratios.by_parameter}
        return "the weights are in half precision" if types <= set(_HALF) else None

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose learning rate rests at next to nothing."""
        for one in rate_stretches(
            context, lambda rate, highest: rate < self.rest * highest or highest == 0
        ):
            if one.step_count < self.stretch_steps:
                continue
            if one.highest == 0 and one.others_learn:
                continue  # a part that starts to learn later
            # A warm-up starts next to 0: a first stretch has to be exactly 0.
            if one.share >= self.stretch_share if one.is_end else one.rate == 0:
                yield self._of_stretch(context, one)

    def _of_stretch(self, context: RuleContext, one: RateStretch) -> Finding:
        step, record, call = one.steps[0], one.series.record, one.scheduler
        which = f"{'last' if one.is_end else 'first'} {one.step_count:,}"
        is_zero = one.rate == 0
        call_site = step.site if call is None else call.site
        rested = None if record is None or not is_zero else record.rested
        made = None if record is None else record.site
        is_planned = one.highest > 0 or _is_scheduled(context, one)
        rate = "is 0" if is_zero else f"is {short(one.rate, 2)} or less"
        return self.finding(
            context,
            message=(
                f"the learning rate of {one.series.name} {rate} in all of its "
                f"{one.series.step_count:,} steps: they change nothing"
                if one.highest == 0
                else f"the learning rate of {one.series.name} {rate} in the {which} of its "
                f"{one.series.step_count:,} steps, after {short(one.highest, 6)} before: they "
                "change nothing"
                if one.is_end
                else f"the learning rate of {one.series.name} {rate} in the {which} of its "
                f"{one.series.step_count:,} steps: they change nothing"
            ),
            remedy=(
                "let the schedule span all steps of the run, and step it as often as it counts: by "
                "step or by epoch"
                if is_planned
                else "see whether a division of whole numbers, as in `lr * batch // 256`, gave 0"
            ),
            # A schedule is at fault where it rests, and a rate of 0 where it is given to the
            # optimizer.
            site=made if not is_planned else call_site if rested is None else rested,
            related=(
                context.related(call_site if rested is not None else None, "the scheduler steps"),
                context.related(made, "the optimizer") if is_planned else None,
                context.related(step.site, "the step") if call is not None else None,
            ),
            severity="error" if is_zero and one.is_end and is_planned else "warning",
            parameters=one.series.parameters,
            evidence={
                "learning_rate": one.rate,
                "highest_learning_rate": one.highest,
                "steps_concerned": one.step_count,
                "steps": one.series.step_count,
                "share_limit": self.stretch_share,
            },
            count=one.step_count,
            step=step.step,
        )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the typical step is too small."""
        ratios = UpdateRatios(context)
        optimizer = ratios.optimizers.targets
        if optimizer is None:
            return
        momentum = max((group.momentum or 0.0 for group in optimizer.groups), default=0.0)
        # A momentum of 1 would divide by zero.
        typical = ratios.typical / (1 - min(momentum, 0.999))
        largest = max(ratios.by_parameter.values()) / (1 - min(momentum, 0.999))
        is_lost = largest < self.lost
        for number, value, limit in (
            ("largest_update_ratio", largest, self.lost),
            ("update_ratio", typical, self.sgd_note),
        ):
            if number != "update_ratio" or optimizer.family == "sgd":
                context.measured(
                    self.code,
                    number,
                    value,
                    limit,
                    fires="below",
                    subject=optimizer.class_name,
                    site=optimizer.site,
                )
        if not is_lost and not (optimizer.family == "sgd" and typical < self.sgd_note):
            yield from self._of_groups(context, ratios, optimizer)
            return
        limit = self.lost if is_lost else self.sgd_note
        yield self.finding(
            context,
            message=(
                f"a step of {optimizer.class_name}{ratios.rates} changes the weights by "
                f"{short(typical, 2)} of their norm, below {short(limit, 6)}"
                + (": float32 rounds such updates away" if is_lost else "")
            ),
            remedy="raise the learning rate, or find out why the gradients are small",
            site=optimizer.site,
            severity=self.level if is_lost else "note",
            parameters=[i for i, ratio in ratios.by_parameter.items() if ratio < limit],
            evidence={
                "update_ratio": typical,
                "limit": limit,
                "learning_rate": max(ratios.learning_rates, default=None),
                "momentum": momentum,
                "matrices": len(ratios.by_parameter),
            },
        )

    def _of_groups(
        self, context: RuleContext, ratios: UpdateRatios, optimizer: OptimizerRecord
    ) -> Iterator[Finding]:
        """Yield a finding for every parameter group that stands still beside another."""
        highest = max(ratios.learning_rates, default=0.0)
        for group in optimizer.groups:
            rate = group.learning_rate or 0.0
            own = [ratios.by_parameter[i] for i in group.parameters if i in ratios.by_parameter]
            # A rate of exactly 0 may be meant to freeze the group.
            if not own or not 0 < rate < self.group_rate * highest or max(own) >= self.lost:
                continue
            yield self.finding(
                context,
                message=(
                    f"a parameter group of {optimizer.class_name} has a learning rate of "
                    f"{short(rate, 2)}, beside one of {short(highest, 6)}: its steps change the "
                    f"weights by {short(max(own), 2)} of their norm at most, and float32 rounds "
                    "such updates away"
                ),
                remedy="raise the learning rate of the group, or freeze its parameters",
                site=optimizer.site,
                parameters=group.parameters,
                evidence={
                    "update_ratio": max(own),
                    "limit": self.lost,
                    "learning_rate": rate,
                    "highest_learning_rate": highest,
                    "matrices": len(own),
                },
                count=len(group.parameters),
            )


def _is_scheduled(context: RuleContext, one: RateStretch) -> bool:
    """Return whether an optimizer's rate is 0 where a scheduler would start from another."""
    made = None if one.series.record is None else context.site(one.series.record.site)
    return any(
        group.learning_rate == 0 and bool(group.initial_learning_rate)
        for captured in context.recording.captured_steps
        for record in captured.recording.evidence_of(OptimizerRecord)
        if record.site is not None and captured.recording.sites[record.site] == made
        for group in record.groups
    )
