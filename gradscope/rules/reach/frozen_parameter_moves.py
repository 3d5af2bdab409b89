"""GS212: frozen parameters that an optimizer step changes."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers, late_freezes, positions
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenParameterMoves(Rule):
    """A frozen parameter is changed by the optimizer's step.

    What it finds:
        Parameters with `requires_grad=False` that a step of the target's optimizer changes, also
        those that are frozen in the middle of a run.

    Why it matters:
        Freezing stops gradients, but not updates without gradients: weight decay, momentum, noise.
        A pretrained layer that should stay fixed shrinks step by step.

    How it is measured:
        The norm of the change that the first optimizer step makes, over the norm of the weights.
        Any change counts: there is no threshold. Parameters outside the optimizer are skipped, such
        as a teacher that is a running average. In a run, the updates that are measured once they
        are frozen count, if no gradient ever comes to them again. `zero_grad(set_to_none=False)`
        leaves zeros: momentum, Adam's averages and weight decay then still move the parameters.
        A parameter that is frozen for one backward alone may move by the gradient of another.

    How to fix it:
        Leave it out of the optimizer, or let the optimizer pass over what has no gradient, as
        torch's own do: set `.grad` to None when it is frozen.

    When it may be wrong:
        If the optimizer is meant to move frozen parameters.

    Source:
        pytorch forum, "Parameters with requires_grad = False are updated during training"; torch
        documentation, `torch.optim.SGD`: weight decay is part of the step.
    """

    code: ClassVar[str] = "GS212"
    name: ClassVar[str] = "frozen-parameter-moves"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS208",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="update_ratio"),)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        stats = context.first.parameter_stats.values()
        optimizers = Optimizers(context)
        skip_reason = optimizers.skip_reason()
        if skip_reason is None and all(stat.update_norm is None for stat in stats):
            return optimizers.without_update
        return skip_reason

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that moves parameters which were frozen midway."""
        windows = context.shared(Windows)
        for one in late_freezes(context):
            record = windows.optimizers[one.optimizer]
            where = positions(context, one.parameters)
            more = f" and {len(where) - 3} more" if len(where) > 3 else ""
            several = len(where) > 1
            zeros = "" if one.zero is None else ": its gradient is zero, and not None"
            yield self.finding(
                context,
                message=(
                    f"{', '.join(where[:3])}{more} {'are' if several else 'is'} frozen midway, and "
                    f"{record.name} still changes {'them' if several else 'it'} by up to "
                    f"{short(one.ratio, 2)} of the weights in a step{zeros}"
                ),
                remedy="set their `.grad` to None when they are frozen, by `zero_grad()` for one",
                site=one.freeze or (one.zero.site if one.zero else record.site),
                related=(
                    context.related(record.site, "the optimizer"),
                    None
                    if one.zero is None
                    else context.related(one.zero.site, "gradients are filled with zeros here"),
                ),
                parameters=one.parameters,
                evidence={
                    "update_ratio": one.ratio,
                    "limit": 0.0,
                    "parameters_moved": len(one.parameters),
                },
                count=len(one.parameters),
                step=one.step,
            )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding for all that moves."""
        optimizer = Optimizers(context).targets
        if optimizer is None:
            return
        stats = context.first.parameter_stats
        moved = {
            index: (stats[index].update_norm or 0.0, stats[index].weight_norm)
            for index in sorted(optimizer.parameters & stats.keys())
            if not context.recording.parameters[index].requires_grad
        }
        moved = {index: norms for index, norms in moved.items() if norms[0] > 0}
        if not moved:
            return
        # Weights of zero that move change by all of their size.
        ratio = max(update / weight if weight else 1.0 for update, weight in moved.values())
        where = positions(context, moved)
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        yield self.finding(
            context,
            message=(
                f"{', '.join(where[:3])}{more} {'is' if len(where) == 1 else 'are'} frozen, and a "
                f"step of {optimizer.class_name} changes {'it' if len(where) == 1 else 'them'} "
                f"by {short(ratio, 2)} of the weights"
            ),
            remedy="pass only parameters that require grad to the optimizer",
            site=optimizer.site,
            parameters=moved,
            evidence={"update_ratio": ratio, "limit": 0.0, "parameters_moved": len(moved)},
            count=len(moved),
        )
