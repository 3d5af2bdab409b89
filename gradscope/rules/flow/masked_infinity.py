"""GS114: infinities that backward makes, and masks again."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.gradient_breaks import (
    SINGULARITIES,
    GradientBreak,
    gradient_breaks,
    plain_name,
)
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedInfinity(Rule):
    """Backward makes an infinite gradient, which is masked to zero before it reaches a parameter.

    What it finds:
        An operation at a point where its derivative is infinite, such as `sqrt` or `log` of zero,
        if a ReLU, a clamp or a selection then sets its gradient to zero.

    Why it matters:
        The parameters are finite only by chance. With a smooth activation instead of the ReLU, a
        weight times the infinity, or another mask, zero times infinity is NaN, which destroys the
        training in one step.

    How it is measured:
        An operation counts if its backward gets finite gradients and returns NaN or infinity, which
        reach no parameter. No parameter may be non-finite for another reason.

    How to fix it:
        Keep the argument away from the point, as `sqrt(x + 1e-8)` or `x.clamp(min=1e-8)` does.

    When it may be wrong:
        If the mask is part of the design. For this reason the finding is a note.

    Source:
        PyTorch issue 10729 and the notes on `torch.where`: a masked branch gets zero times
        infinity. Measured: the rule reports three of three such models of the tests, and none whose
        derivative is finite or whose infinity reaches a parameter, which is GS103.
    """

    code: ClassVar[str] = "GS114"
    name: ClassVar[str] = "masked-infinity"
    level: ClassVar[Severity] = "note"

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if context.has_backward else "backward delivered no gradient"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose infinity is masked."""
        stats = context.first.parameter_stats.values()
        if any(stat.gradient is not None and stat.gradient.is_broken for stat in stats):
            return
        reported = set[int | None]()
        for one in context.shared(gradient_breaks):
            # What reaches parameters is broken, and another rule's.
            if not one.parameters and one.node.site not in reported:
                reported.add(one.node.site)
                yield self._finding(context, one)

    def _finding(self, context: RuleContext, one: GradientBreak) -> Finding:
        singularity = SINGULARITIES.get(plain_name(one.node.operation))
        function = singularity.function if singularity else plain_name(one.node.operation)
        where = f" where {singularity.where}" if singularity else ""
        count = one.returned.nonfinite
        many = "elements are" if count is None else f"{count:,} of {one.returned.numel:,} are"
        return self.finding(
            context,
            message=(
                f"the backward of {function} makes gradients that are not finite{where}, and a "
                f"later operation masks them: {many} NaN or infinite"
            ),
            remedy=singularity.remedy if singularity else "keep its argument away from the point",
            site=one.node.site,
            evidence={"operation": one.node.operation, "nonfinite": count},
            count=count or 1,
        )
