"""GS323: collections of gradients that the next backward overwrites."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, KeptGradientsEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsKeptByReference(Rule):
    """The gradients of several losses are kept by reference, so all are those of the last one.

    What it finds:
        `[p.grad for p in parameters]` after each of several backward passes, as in gradient surgery
        and in a comparison of tasks, where `.grad` stays the same tensor: with
        `zero_grad(set_to_none=False)`, or without any zero_grad in between.

    Why it matters:
        zero_grad and backward write into the tensors that were kept. All collections hold what the
        last backward left: projections, differences and averages of the tasks' gradients are wrong,
        and no exception is raised.

    How it is measured:
        In captured steps, the rule looks for lists and dicts that hold a parameter's gradient. It
        is found if one was filled between two backward passes of a step, the second of these wrote
        to the same tensor, and the script then uses it while another collection, filled later,
        holds it too, in two steps at least. A list that was made before the step, or one that the
        next one replaces, is fine.

    How to fix it:
        Keep copies: `[p.grad.clone() for p in parameters]`, or call `torch.autograd.grad`.

    When it may be wrong:
        If the later collection is only a second list of what the earlier one holds on purpose.

    Source:
        torch documentation, "Autograd mechanics", on accumulation in place into `.grad`;
        `torch.optim.Optimizer.zero_grad`, on `set_to_none`.
        Yu et al. 2020, "Gradient Surgery for Multi-Task Learning" (arXiv 2001.06782).
    """

    code: ClassVar[str] = "GS323"
    name: ClassVar[str] = "gradients-kept-by-reference"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        has_backward = any(only(BackwardEvent, context.shared(Windows).events))
        return None if has_backward else "no backward was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that uses such collections."""
        for event in only(KeptGradientsEvent, context.shared(Windows).events):
            yield self.finding(
                context,
                message=(
                    "gradients are collected by reference after several backward passes: all "
                    f"{event.collections:,} collections hold those of the last one"
                ),
                remedy="keep copies: [p.grad.clone() for p in parameters]",
                site=event.site,
                evidence={"collections": event.collections, "limit": 1},
                count=event.collections,
                step=event.step,
            )
