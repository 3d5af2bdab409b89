"""GS308: losses that are backpropagated twice into the same gradients."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, by_line
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedBackward(Rule):
    """A loss is backpropagated twice into the same gradients.

    What it finds:
        Two backward passes before one step where one starts inside the graph of the other: the same
        loss twice, or a loss on its own and again as part of the total.

    Why it matters:
        Its gradient counts twice. This needs `retain_graph=True`, which is often added to silence
        the error message, and which keeps the whole graph in memory.

    How it is measured:
        A step counts if a pass adds to unused gradients, and its graph contains the loss of an
        earlier pass or is part of that graph. Losses that only share part of the model, such as two
        heads, count once each. The rule reports at least `share` of an optimizer's steps.

    How to fix it:
        Call `backward()` once, on the total, and remove `retain_graph=True`.

    When it may be wrong:
        If the double weight is intended. A factor in the total does the same at half the cost.

    Source:
        mosaicml/composer pull request 1240; torch documentation, `torch.Tensor.backward`.
    """

    code: ClassVar[str] = "GS308"
    name: ClassVar[str] = "repeated-backward"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    share: float = 0.5
    """Share of an optimizer's steps, 0 to 1. Chosen: most steps."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every backward that repeats another."""
        affected = []
        for series in context.shared(Windows).series:
            sick = tuple(window for window in series.windows if _repeated(window) is not None)
            context.measured_share(
                self.code,
                "share_of_steps",
                steps_of(sick),
                series.step_count,
                self.share,
                subject=series.name,
            )
            if sick and steps_of(sick) >= self.share * series.step_count:
                affected.append(
                    AffectedWindows(series=series, windows=sick, judged=series.step_count)
                )
        for group in by_line(affected, lambda window: (_repeated(window) or window.step).site):
            again = _repeated(group.first)
            before = [
                event.site
                for event in group.first.passes
                if again is not None and event.position < again.position
            ]
            yield self.finding(
                context,
                message=(
                    "backward() goes through a loss that was already backpropagated: its gradient "
                    f"counts twice, in {group.text}"
                ),
                remedy="call backward() once, on the total, without retain_graph=True",
                site=group.site,
                related=[
                    context.related(site, "the previous backward into the same gradients")
                    for site in dict.fromkeys(before)
                ],
                parameters=group.parameters,
                evidence={
                    "passes": len(group.first.passes),
                    "parameters_added_to": None if again is None else float(again.added),
                    "steps_concerned": group.step_count,
                    "steps": group.judged,
                },
                count=group.step_count,
                step=group.first.step.step,
            )


def _repeated(window: Window) -> BackwardEvent | None:
    """Return the first pass that repeats an earlier one, on top of its gradients."""
    # `added` tells apart a loss that is differentiated again after its gradients were copied and
    # zeroed: nothing counts twice then.
    return next((e for e in window.passes[1:] if e.again and e.added), None)
