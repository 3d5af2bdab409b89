"""GS315: totals and lists that keep the graph of every step."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardStart, KeptEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class LossHistoryKept(Rule):
    """A total or a list keeps the graph of every step, and memory grows.

    What it finds:
        A variable or an attribute that stores a tensor with its history in every step, such as
        `total += loss`, `losses.append(loss)`, or outputs of a validation without `no_grad`, if no
        backward ever starts from it.

    Why it matters:
        Each of the tensors keeps its graph alive. After a backward, these are the graph's nodes.
        Without one, as in validation, they include every activation of the forward. Memory grows
        step by step until it is exhausted, often only after hours.

    How it is measured:
        Some of the backward passes, ever fewer, look through the variables of the running functions
        and the attributes of the script's objects. Of each is counted how many operations it keeps
        that were made before the time before and lead to a parameter that a step has changed since.
        A variable is reported if that number reached a new maximum at least `rises` times, and no
        backward went through these operations. It is an error from `error_steps` steps on.

    How to fix it:
        Add up `loss.item()` or `loss.detach()`; keep `output.detach()`; validate under
        `torch.no_grad()`.

    Fix safety:
        Safe. What the line adds is detached, as `total += loss.detach()`. Of a tuple, the only
        variable is detached.

    When it may be wrong:
        If the stored graphs are meant for a later backward, after steps that have changed the same
        parameters. Such a backward fails or gives the gradients of outdated weights.

    Source:
        torch documentation, "Frequently Asked Questions", "My model reports out of memory": "don't
        accumulate history across your training loop".
        Measured: of 9 healthy training loops that keep numbers, detached tensors, the last output,
        or log-probabilities for a later step, none rises more than once; sums and lists of 4 sick
        ones rise in every search, from 6 to 278 nodes in 47 steps.
    """

    code: ClassVar[str] = "GS315"
    name: ClassVar[str] = "loss-history-kept"
    level: ClassVar[Severity] = "warning"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.losses")
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="growth"),)

    rises: int = 3
    """Number of searches, each with more operations than all before. Chosen: a variable with the
    output of the previous step and that of the last validation causes two.
    """
    error_steps: int = 20
    """Minimum number of steps between the first and the last of them for an error. Chosen: longer
    than buffers of the last few steps, as in GS309.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        events = context.shared(Windows).events
        is_counted = any(event.nodes is not None for event in only(BackwardStart, events))
        return None if is_counted else "no variable of the run was searched for graphs"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every variable that keeps more and more."""
        found: dict[tuple[int | None, str], list[KeptEvent]] = {}
        for event in only(KeptEvent, context.shared(Windows).events):
            found.setdefault((event.site, event.subject), []).append(event)
        for events in found.values():
            # The first event reports three rises, each further event one more.
            last = events[-1]
            context.measured(
                self.code,
                "rises",
                len(events) + 2,
                self.rises,
                subject=last.subject,
                site=last.site,
                step=last.step,
            )
            if len(events) + 2 >= self.rises:
                yield self._finding(context, events[-1], step=events[0].step)

    def _finding(self, context: RuleContext, last: KeptEvent, step: int) -> Finding:
        before, now, steps = last.nodes_before, last.nodes, last.steps
        verb = "adds up the graphs" if last.sum else "keeps the graphs"
        return self.finding(
            context,
            message=(
                f"{last.subject} {verb} of earlier steps: from {before:,} to {now:,} operations "
                f"in {steps:,} steps"
            ),
            remedy=_remedy(last),
            site=last.site,
            severity="error" if steps >= self.error_steps else "warning",
            evidence={
                "kept_by": last.subject,
                "nodes_first": before,
                "nodes_last": now,
                "growth": now / max(before, 1),
                "steps": steps,
                "limit": self.rises,
            },
            step=step,
        )


def _remedy(last: KeptEvent) -> str:
    name = last.subject
    if last.sum:
        return f"add loss.item() or loss.detach() to {name}, not the loss itself"
    return f"put detached tensors into {name}, as output.detach(), or compute them under no_grad()"
