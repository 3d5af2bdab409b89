"""GS308: losses that are backpropagated twice into the same gradients."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.optimizer_steps import RunEvent, Sighting, Window, Windows, by_line
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedBackward(Rule):
    """A loss is backpropagated twice into the same gradients.

    What it finds:
        Backward passes before one step of which one starts inside the graph of another: the same
        loss twice, or a loss on its own and again as a part of the total.

    Why it matters:
        Its gradient counts twice. `retain_graph=True`, which this needs, is often put there against
        the error message that would have told so, and keeps the whole graph in memory.

    How it is measured:
        A step counts where a pass adds to gradients that no step has used, and its graph holds the
        loss of an earlier pass, or is a part of the graph of one. Losses that merely share a part
        of the model, as two heads do, count once each. From `share` of an optimizer's steps on it
        is reported. There is no other threshold.

    How to fix it:
        Call `backward()` once, on the total, and remove `retain_graph=True`.

    When it may be wrong:
        Where the double weight is meant; a factor in the total says so, at half the cost.

    Source:
        mosaicml/composer pull request 1240; torch documentation, `torch.Tensor.backward`.
    """

    code: ClassVar[str] = "GS308"
    name: ClassVar[str] = "repeated-backward"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    share: float = 0.5
    """Of an optimizer's steps, 0 to 1. Chosen: the most."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every backward that repeats another."""
        sightings = []
        for series in context.shared(Windows).series:
            sick = tuple(window for window in series.windows if _repeated(window) is not None)
            if sick and len(sick) >= self.share * len(series.windows):
                sightings.append(Sighting(series=series, windows=sick, judged=len(series.windows)))
        for group in by_line(sightings, lambda window: (_repeated(window) or window.step).site):
            again = _repeated(group.first)
            before = [
                event.site
                for event in group.first.passes
                if again is not None and event.position < again.position
            ]
            yield self.finding(
                context,
                message=(
                    "backward() goes through a loss that was backpropagated before: its gradient "
                    f"counts twice, in {group.words}"
                ),
                remedy="call backward() once, on the total, without retain_graph=True",
                site=group.site,
                related=[
                    context.related(site, "the backward before, into the same gradients")
                    for site in dict.fromkeys(before)
                ],
                parameters=group.parameters,
                evidence={
                    "passes": len(group.first.passes),
                    "parameters_added_to": None if again is None else again.number("added"),
                    "steps_concerned": len(group.windows),
                    "steps": group.judged,
                },
                count=len(group.windows),
                step=group.first.step.step,
            )


def _repeated(window: Window) -> RunEvent | None:
    """Return the first pass that repeats an earlier one, on top of its gradients."""
    return next((e for e in window.passes[1:] if e.count("again") and e.count("added")), None)
