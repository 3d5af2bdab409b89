"""GS212: frozen parameters that an optimizer step changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers, positions
from gradscope.rules.measure import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenParameterMoves(Rule):
    """A frozen parameter is changed by the optimizer's step.

    What it finds:
        Parameters with `requires_grad=False` that a step of the target's optimizer changes.

    Why it matters:
        Freezing stops gradients, but not updates without gradients: weight decay, momentum, noise.
        A pretrained layer that should stay fixed shrinks step by step.

    How it is measured:
        The norm of the change that the first optimizer step makes, over the norm of the weights.
        Any change counts: there is no threshold. What is not in the optimizer is left out, as a
        teacher that follows by averaging.

    How to fix it:
        Leave it out of the optimizer, or let the optimizer pass over what has no gradient, as
        torch's own do.

    When it may be wrong:
        Where the optimizer is written to move frozen parameters.

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
        ratio = max(update / weight if weight else 1.0 for update, weight in moved.values())
        where = positions(context, moved)
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        yield self.finding(
            context,
            message=(
                f"{', '.join(where[:3])}{more} {'is' if len(where) == 1 else 'are'} frozen, and a "
                f"step of {optimizer.class_name} changes {'it' if len(where) == 1 else 'them'} "
                f"by {ratio:.2g} of the weights"
            ),
            remedy="pass only parameters that require grad to the optimizer",
            site=optimizer.site,
            parameters=moved,
            evidence={"update_ratio": ratio, "limit": 0.0, "parameters_moved": len(moved)},
            count=len(moved),
        )
