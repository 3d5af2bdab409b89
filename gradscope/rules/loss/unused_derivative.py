"""GS721: derivatives with a graph that the loss does not depend on."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import StepEvent, UnusedDerivativeEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_step
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedDerivative(Rule):
    """A derivative is computed with `create_graph=True`, and no loss depends on it.

    What it finds:
        A gradient penalty or a residual that is computed and not added to the loss, and weights
        that an inner step has adapted while the outer loss is computed with those from before.

    Why it matters:
        `create_graph=True` costs time and memory for one purpose: to train through the derivative.
        Without a loss that depends on it, the term has no effect on the training.

    How it is measured:
        In captured steps, no backward goes through the nodes of any result of an `autograd.grad`
        with `create_graph=True`, in its own step and in the next one. No further derivative is
        taken of it, and its numbers are not read, as by `detach()` or an update in place. This
        holds for two captured steps, and no captured step before used what the line computes. A
        derivative that the forward of a module computes, such as forces of an energy model, is a
        note. Nothing is reported where all gradients are zero.

    How to fix it:
        Add the term that uses the derivative to the loss, or leave out `create_graph=True`.

    When it may be wrong:
        If the derivative is computed to be logged, by a function that trainings use elsewhere.

    Source:
        torch documentation, `torch.autograd.grad`: `create_graph` is for higher order derivatives.
    """

    code: ClassVar[str] = "GS721"
    name: ClassVar[str] = "unused-derivative"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_step,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose derivative no captured step uses."""
        events = context.shared(Windows).events
        norms = [one.norm for one in only(StepEvent, events) if one.norm is not None]
        if norms and not any(norms):
            return  # nothing learns: another cut is to be found first
        for event in only(UnusedDerivativeEvent, events):
            yield self.finding(
                context,
                message=(
                    "the derivative is computed with create_graph=True, and no backward of its "
                    "step or of the next one goes through it: the loss does not depend on it"
                ),
                remedy="add the term that uses it to the loss, or leave out create_graph=True",
                site=event.site,
                severity="note" if _is_in_forward(context, event.site) else None,
                evidence={"captured_steps": event.steps},
                step=event.step,
            )


def _is_in_forward(context: RuleContext, site: int | None) -> bool:
    function = None if site is None else context.recording.sites[site].function
    # Such a function may be called for its value alone, or to train: it has a graph for both.
    return function is not None and function.rpartition(".")[2] == "forward"
