"""GS309: graphs that reach back through earlier steps."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    BackwardErrorEvent,
    BackwardEvent,
    BackwardStart,
    CarriedEvent,
    only,
)
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_OF_A_STEP = ("GS502", "GS503")
"""Rules that report the same exception, by the operation it is about."""

_COUNTED_AT_MOST = 20_000
"""Number of nodes of a graph at which capture stops counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingGraph(Rule):
    """The graph of the loss reaches back through earlier steps, and grows or is outdated.

    What it finds:
        A loss that is added to those of earlier steps, and a hidden state that is carried to the
        next step without `detach()`. Also what is computed from weights once, such as an
        exponential in `__init__`, and used in all steps, as `retain_graph=True` allows. And the
        exception that torch raises if the earlier part of the graph is freed.

    Why it matters:
        Each backward goes through the earlier steps again: time and memory grow without limit, and
        gradients of outdated weights are added to current ones. If a step has changed a weight in
        between, torch may raise an exception. What was computed once keeps its first value: the
        steps change weights that nothing reads any more, by the same gradient each time.

    How it is measured:
        The rule counts the graph nodes of the backward passes of each line, at first every time and
        later at intervals, and notes whether some nodes were made before both a step and the
        previous backward of that line. It reports a line if all counts from the first such one
        reach back, never fall and rise until the end, over at least `measurements` counts. The
        finding is an error from `error_passes` passes, since a fixed horizon may still be filling
        up before. It is also an error if all but the first of at least `measurements` counts use
        operations that an earlier pass used, too, and that computed numbers from weights which
        have changed since; views of weights show the change. The finding points to the statement
        that stores the tensor for the next step if a variable or an attribute holds it, otherwise
        to the backward.

    How to fix it:
        `detach()` the state between steps; add up `loss.item()` or `loss.detach()` for logging.
        Compute what depends on weights anew in each step.

    Fix safety:
        Safe. A state that each step replaces is detached where the next step reads it, or behind
        the line that stores it. No edit for sums and containers, if its type is unclear, or if the
        rest of the step reads the state of an LSTM.

    When it may be wrong:
        Truncated backpropagation through time with a long horizon, during its first steps.

    Source:
        torch documentation, "Frequently Asked Questions", "My model reports out of memory";
        Stack Overflow question 53912956.
    """

    code: ClassVar[str] = "GS309"
    name: ClassVar[str] = "growing-graph"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.losses")
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="growth"),)

    measurements: int = 3
    """Number of node counts that reach back across a step. Chosen: two may rise by chance."""
    error_passes: int = 20
    """Number of backward passes of the line between the first and the last count. Chosen: longer
    than common horizons of truncated backpropagation."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        events = context.shared(Windows).events
        passes = _passes(context.shared(Windows))
        if any(event.nodes is not None for event in only(BackwardStart, events)):
            return None
        return "no graph of the run was counted" if passes else "no backward was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every backward whose graph grows, or that fails for it."""
        windows = context.shared(Windows)
        carriers = _carriers(windows)
        failures: dict[tuple[int | None, bool], list[BackwardErrorEvent]] = {}
        for failed in only(BackwardErrorEvent, windows.events):
            # torch raises the same errors for a second backward within a step, and for a write of
            # the forward itself. Other rules report these; a graph from before the step tells them
            # apart.
            if failed.older and (failed.freed or (failed.in_place and failed.site in carriers)):
                failures.setdefault((failed.site, bool(failed.freed)), []).append(failed)
        for (site, _), events in failures.items():
            yield self._failure(context, events, carriers.get(site))
        by_site: dict[int | None, list[BackwardEvent]] = {}
        for event in _passes(windows):
            by_site.setdefault(event.site, []).append(event)
        for site, passes in by_site.items():
            yield from self._of_line(context, passes, carriers.get(site))

    def _of_line(
        self, context: RuleContext, passes: list[BackwardEvent], carrier: CarriedEvent | None
    ) -> Iterator[Finding]:
        """Yield a finding if the passes of a line go through more and more, or the same again."""
        cause = _Cause(passes=passes, carrier=carrier)
        always = _reaching_back(passes)
        # The total of an epoch starts anew, so its later counts do not reach back. As a carried sum
        # it is found all the same.
        positions = always or _before_reset(passes, carrier)
        counts = (passes[position].nodes for position in positions)
        nodes = [count for count in counts if count is not None]
        context.measured(
            self.code,
            "graphs_that_reach_back",
            len(nodes),
            self.measurements,
            subject=passes[0].subject,
            site=passes[0].site,
        )
        if len(nodes) < self.measurements:
            return
        if _grows(nodes):
            growth = _Growth(
                first=nodes[0],
                last=nodes[-1],
                counts=len(nodes),
                passes=positions[-1] - positions[0],
                lasts=_last_older(passes) - positions[0],
                is_reset=not always,
            )
            yield self._growth(context, growth, cause, step=passes[positions[0]].step)
        # The first pass cannot be outdated: no step has changed the weights before it.
        elif always and all(passes[position].outdated for position in positions[1:]):
            yield self._outdated(context, cause)

    def _outdated(self, context: RuleContext, cause: "_Cause") -> Finding:
        carrier = cause.carrier
        name = "part of the graph" if carrier is None else carrier.subject
        return self.finding(
            context,
            message=(
                f"{name} was computed once, from weights that have changed since: all "
                f"{len(cause.passes):,} passes use its first value, which no step changes"
            ),
            remedy=f"compute {'it' if carrier is None else name} anew in every step",
            site=cause.site,
            related=cause.related(context, "this backward goes through it"),
            severity="error",
            evidence={
                "carried": None if carrier is None else carrier.subject,
                "counts": sum(one.nodes is not None for one in cause.passes),
                "limit": self.measurements,
            },
            count=len(cause.passes),
            step=cause.passes[0].step,
        )

    def _growth(
        self, context: RuleContext, growth: "_Growth", cause: "_Cause", step: int
    ) -> Finding:
        carrier = cause.carrier
        what = (
            "the graph reaches back through earlier steps and grows"
            if carrier is None
            else f"{carrier.subject} carries the graphs of earlier steps, more with each"
        )
        return self.finding(
            context,
            message=(
                f"{what}: from {growth.first:,.0f} to {growth.last:,.0f} nodes "
                f"in {growth.passes:,} passes{', before it starts anew' * growth.is_reset}"
            ),
            remedy=_remedy(carrier),
            site=cause.site,
            related=cause.related(context, "this backward goes through all of them"),
            severity="error" if growth.lasts >= self.error_passes else "warning",
            evidence={
                "carried": None if carrier is None else carrier.subject,
                "nodes_first": growth.first,
                "nodes_last": growth.last,
                "growth": growth.last / max(growth.first, 1),
                "passes": growth.passes,
                "counts": growth.counts,
                "limit": self.measurements,
            },
            count=len(cause.passes),
            step=step,
        )

    def _failure(
        self,
        context: RuleContext,
        events: list[BackwardErrorEvent],
        carrier: CarriedEvent | None,
    ) -> Finding:
        """Return the finding for the passes of a line that fail, where the script goes on."""
        cause = _Cause(passes=events, carrier=carrier)
        event = events[0]
        what = (
            "the graph reaches back into an earlier step, and that part of it"
            if carrier is None
            else f"{carrier.subject} carries the graph of an earlier step, which"
        )
        times = f" {len(events):,} times" if len(events) > 1 else ""
        why = "is freed" if event.freed else "needs the weights from before the step"
        return self.finding(
            context,
            message=f"backward() fails{times}: {what} {why}",
            remedy=_remedy(carrier),
            site=cause.site,
            related=cause.related(context, "this backward goes through it"),
            evidence={
                "carried": None if carrier is None else carrier.subject,
                "nodes": event.nodes,
            },
            count=len(events),
            step=event.step,
            # With the carrier known, this finding names the cause and the exception follows.
            # Without it, the rules on the operation name a better line.
            explains=() if carrier is None else _OF_A_STEP,
            caused_by=_OF_A_STEP if carrier is None else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """The first and the last node count that rise, and the number of passes between."""

    first: float
    last: float
    counts: int
    passes: int
    lasts: int
    """Number of passes from the first count that reaches back to the last one."""
    is_reset: bool
    """Whether the graph starts anew later on, as the sum of an epoch does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """The backward passes of a line, and what carries the history that they go through."""

    passes: Sequence[BackwardStart]
    carrier: CarriedEvent | None

    @property
    def site(self) -> int | None:
        """The line that stores it; the line of the backward if unknown."""
        carrier = self.carrier
        return self.passes[0].site if carrier is None or carrier.site is None else carrier.site

    def related(self, context: RuleContext, words: str) -> list[RelatedLocation | None]:
        """Return the line of the backward, if it is another one."""
        backward = self.passes[0].site
        return [] if backward == self.site else [context.related(backward, words)]


def _carriers(windows: Windows) -> dict[int | None, CarriedEvent]:
    """Return what carries history into a backward, by its line."""
    found: dict[int | None, CarriedEvent] = {}
    waiting: CarriedEvent | None = None
    for event in windows.events:
        if isinstance(event, CarriedEvent):
            waiting = event
        elif isinstance(event, BackwardEvent | BackwardErrorEvent) and waiting is not None:
            # Capture records a carrier right before the backward that it is carried into. The first
            # one at a line is where the history begins.
            found.setdefault(event.site, waiting)
            waiting = None
    return found


def _remedy(carrier: CarriedEvent | None) -> str:
    if carrier is None or carrier.site is None:
        return "detach() state that is carried between steps; add up loss.item(), not the loss"
    name = carrier.subject
    if carrier.collected:
        return (
            f"put detached tensors into {name}, such as loss.detach(), or clear it after each step"
        )
    if carrier.sum:
        return f"add loss.item() or loss.detach() to {name}, or reset it after each step"
    if not carrier.repeated:
        return f"recreate {name} in every step, or detach() it if nothing should learn through it"
    return f"detach it between the steps: {name} = {name}.detach(), or each part of a tuple"


def _passes(windows: Windows) -> list[BackwardEvent]:
    return list(only(BackwardEvent, windows.events))


def _reaching_back(passes: Sequence[BackwardEvent]) -> list[int]:
    """Return the indices of counts that include an earlier step; none if a later one does not."""
    counted = [i for i, one in enumerate(passes) if one.nodes is not None]
    older = [position for position in counted if passes[position].older]
    # A later count without an earlier step shows that the history is let go now and then, as at the
    # start of each sequence.
    is_let_go = bool(older) and any(position > older[0] for position in set(counted) - set(older))
    return [] if is_let_go else older


def _before_reset(passes: Sequence[BackwardEvent], carrier: CarriedEvent | None) -> list[int]:
    """Return the indices of the first counts that include an earlier step, while they rise.

    There are none unless the loss itself is a sum that is carried from step to step.
    """
    if carrier is None or not carrier.sum or carrier.subject != passes[0].subject:
        return []
    found: list[int] = []
    most = 0.0
    for position, one in enumerate(passes):
        if one.nodes is None:
            continue
        # A smaller graph means that the sum began again, even if its first term is from before the
        # step.
        if found and (not one.older or one.nodes < most):
            break
        if one.older:
            found.append(position)
            most = one.nodes
    return found


def _last_older(passes: Sequence[BackwardEvent]) -> int:
    return max(position for position, one in enumerate(passes) if one.older)


def _grows(nodes: Sequence[float]) -> bool:
    """Return whether counts never fall, and rise to the end; to where counting stops at least."""
    never_falls = all(one <= other for one, other in pairwise(nodes))
    rises = [position for position, (one, other) in enumerate(pairwise(nodes)) if one < other]
    at_end = bool(rises) and rises[-1] == len(nodes) - 2
    # Counts that stand still in the end belong to a full horizon of truncated backpropagation,
    # except where counting itself stops.
    at_limit = bool(rises) and nodes[-1] >= _COUNTED_AT_MOST
    # One rise may be the difference between the first step and all others, such as a state that
    # starts as a constant.
    return never_falls and len(rises) > 1 and (at_end or at_limit)
