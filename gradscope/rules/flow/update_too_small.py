"""GS109: steps that hardly move the weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.update_ratios import UpdateRatios
from gradscope.rules.measure import Measure
from gradscope.rules.rule import Lasting, Rule

_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTooSmall(Rule):
    """One optimizer step hardly changes the weights.

    What it finds:
        A learning rate that is too small for the gradients of this model and batch.

    Why it matters:
        Below about 1e-7 of the weight, float32 rounds a step away and nothing changes. Above that,
        learning takes proportionally more steps.

    How it is measured:
        For every weight matrix that gets a gradient, the norm of the first step's change over the
        norm of the weight. The median over the matrices is judged. With momentum it is divided by
        one minus the momentum, because steps in the same direction add up. If even the largest
        ratio is below `lost`, it is a warning for every optimizer. For SGD, a median below
        `sgd_note` is a note. The rule skips learning rates that a scheduler holds below their
        initial value, and weights in half precision.

    How to fix it:
        Raise the learning rate, or look for what makes the gradients so small: a loss that is
        divided twice, a mean over too much.

    When it may be wrong:
        Fine-tuning with SGD and intentionally tiny steps.

    Source:
        Measured: of 4,540 runs, 3 % of those by SGD with a ratio below 0.0001 learned anything in
        250 steps, 19 % up to 0.0003, 54 % up to 0.001. The spacing of float32 is 6e-8 to 1.2e-7.
    """

    code: ClassVar[str] = "GS109"
    name: ClassVar[str] = "update-too-small"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "always"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="update_ratio", worse="lower"),)

    lost: float = 1e-7
    """Ratio: less than float32 can add to a number. Source: its spacing."""
    sgd_note: float = 1e-4
    """Ratio of SGD. Measured: 3 % learn in 250 steps."""

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
        if highest and max(ratios.learning_rates, default=highest) < highest / 2:
            return "the learning rate is below half of its later value"
        if optimizer is not None and not optimizer.is_torchs and ratios.typical == 0:
            return "the first step of an optimizer outside torch changed nothing"
        types = {context.recording.parameters[index].shape.dtype for index in ratios.by_parameter}
        return "the weights are in half precision" if types <= set(_HALF) else None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the typical step is too small."""
        ratios = UpdateRatios(context)
        optimizer = ratios.optimizers.targets
        if optimizer is None:
            return
        momentum = max((group.momentum or 0.0 for group in optimizer.groups), default=0.0)
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
            return
        limit = self.lost if is_lost else self.sgd_note
        yield self.finding(
            context,
            message=(
                f"a step of {optimizer.class_name}{ratios.rates} changes the weights by "
                f"{typical:.1e} of their norm, below {limit:g}"
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
