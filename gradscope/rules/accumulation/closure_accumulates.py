"""GS319: closures that add up the gradients of their evaluations."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, Group, by_line
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosureAccumulates(Rule):
    """A closure calls backward() without zeroing the gradients of its last evaluation.

    What it finds:
        Closures for `LBFGS.step(closure)` that do not call `zero_grad()`, or loops that call it
        once per step, outside of the closure.

    Why it matters:
        LBFGS evaluates the closure up to `max_iter` times in a step, and more often in a line
        search. Without a zero in the closure, each evaluation returns the sum of all gradients
        before it. The curvature that LBFGS derives from their differences is wrong: it diverges, or
        stops early.

    How it is measured:
        LBFGS counts its evaluations. In a healthy step, as many backward passes find gradients that
        are zero or None. A step counts if it has two evaluations or more, and at most one such
        pass. The finding needs `share` of the steps with two evaluations or more.

    How to fix it:
        Call `optimizer.zero_grad()` at the start of the closure.

    When it may be wrong:
        No intended use is known.

    Source:
        torch documentation, `torch.optim`, `optimizer.step(closure)`: the closure clears the
        gradients, computes the loss, and returns it.
        Measured: in 18 steps of two solvers, healthy ones have as many passes that find no gradient
        as evaluations, sick ones 0 or 1.
    """

    code: ClassVar[str] = "GS319"
    name: ClassVar[str] = "closure-accumulates"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = (
        "GS101",
        "GS103",
        "GS104",
        "GS107",
        "GS108",
        "GS301",
        "GS303",
    )

    share: float = 0.9
    """Share of the steps with several evaluations, 0 to 1. Chosen: nearly all steps."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every closure that adds up gradients."""
        found = [self._affected(context, one) for one in context.shared(Windows).series]
        affected = [one for one in found if one is not None]
        for group in by_line(affected, _backward):
            yield self._found(context, group)

    def _affected(self, context: RuleContext, series: Series) -> AffectedWindows | None:
        counted = _evaluations(series)
        # One evaluation has nothing to add to. LBFGS with `max_iter=1` makes only those.
        judged = [window for window, evaluations in counted if evaluations > 1]
        # One clean pass is left to a sick step, since a `zero_grad()` outside of the closure cleans
        # the first evaluation.
        sick = tuple(window for window in judged if len(_clean(window)) <= 1 and _passes(window))
        if judged:
            share = steps_of(sick) / steps_of(judged)
            subject = series.name
            context.measured(self.code, "share_of_steps", share, self.share, subject=subject)
        if not sick or steps_of(sick) < self.share * steps_of(judged):
            return None
        return AffectedWindows(series=series, windows=sick, judged=steps_of(judged))

    def _found(self, context: RuleContext, group: Group) -> Finding:
        series = group.affected[0].series
        first = group.first
        counts = {window.step.position: number for window, number in _evaluations(series)}
        evaluations = counts.get(first.step.position, 0)
        zeros = [event for event in first.events if event.kind == "zero"]
        return self.finding(
            context,
            message=(
                f"the closure adds the gradients of its evaluations up: {group.text} evaluate it "
                f"several times ({evaluations} in the first), without zeroing in between"
            ),
            remedy="call zero_grad() at the start of the closure",
            site=group.site,
            related=(
                context.related(first.step.site, "the step that evaluates the closure"),
                context.related(zeros[0].site if zeros else None, "they are zeroed here alone"),
            ),
            parameters=group.parameters,
            evidence={
                "evaluations": evaluations,
                "passes_without_older_gradients": len(_clean(first)),
                "steps_concerned": group.step_count,
                "steps": group.judged,
            },
            count=group.step_count,
            step=first.step.step,
        )


def _evaluations(series: Series) -> list[tuple[Window, int]]:
    """Return the steps with a known number of evaluations of their closure, and this number."""
    found = []
    # torch's LBFGS counts its evaluations in `func_evals` since it was made, not since the last
    # step; one that replaces it starts at 0.
    before: dict[int | None, int] = {}
    for window in series.windows:
        total = window.step.evaluations
        if total is not None:
            optimizer = window.step.optimizer
            found.append((window, int(total) - before.get(optimizer, 0)))
            before[optimizer] = int(total)
    return found


def _passes(window: Window) -> int:
    return sum(1 for _ in only(BackwardEvent, window.events))


def _clean(window: Window) -> list[int]:
    """Return the indices of the passes that find no gradient."""
    return [
        event.position
        for event in only(BackwardEvent, window.events)
        # A pass on top of an earlier evaluation or step is stale. The second of two passes in one
        # evaluation adds, so that it does not count as another clean one.
        if not event.added and not event.stale
    ]


def _backward(window: Window) -> int | None:
    return next((e.site for e in only(BackwardEvent, reversed(window.events))), None)
