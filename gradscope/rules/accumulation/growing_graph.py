"""GS309: graphs that reach back through all earlier steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.rules.accumulation.windows import RunEvent, Windows
from gradscope.rules.case import Case
from gradscope.rules.measure import Measure
from gradscope.rules.rule import Rule

_COUNTED_AT_MOST = 20_000
"""Nodes of a graph: where capture stops counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingGraph(Rule):
    """The graph of the loss reaches back through earlier steps, and grows.

    What it finds:
        A loss that is summed with those of earlier steps, and a hidden state that is carried from
        one step to the next without `detach()`; and the exception that torch raises for it where
        the earlier part of the graph is freed.

    Why it matters:
        Each backward goes through the steps before once more: time and memory grow until neither is
        left, and gradients of weights that are gone are added to those of today. Where the steps
        have changed a weight in between, torch raises.

    How it is measured:
        The nodes of the graph of every backward of a line are counted, at first every time and then
        now and then, and whether some were made before the last step of an optimizer. It is
        reported where they are, and the count never falls and rises to the end, over `measurements`
        counts at least. It is an error from `error_passes` passes on, for a fixed reach into the
        past may be filling up at first.

    How to fix it:
        `detach()` the state between steps; add up `loss.item()` or `loss.detach()` for the record.

    When it may be wrong:
        Truncated backpropagation through time whose horizon is many steps long, in its first steps.

    Source:
        torch documentation, "Frequently Asked Questions", "My model reports out of memory";
        Stack Overflow question 53912956.
    """

    code: ClassVar[str] = "GS309"
    name: ClassVar[str] = "growing-graph"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="growth"),)

    measurements: int = 3
    """Counts of nodes that reach behind a step. Chosen: two may rise by chance."""
    error_passes: int = 20
    """Backward passes of the line, between the first count and the last. Chosen: longer than common
    horizons of truncated backpropagation, in steps."""

    def obstacle(self, case: Case) -> str | None:
        """Return why this rule cannot judge the recording."""
        events = case.shared(Windows).events
        passes = _passes(case.shared(Windows))
        if any(event.number("nodes") is not None for event in events):
            return None
        return "no graph of the run was counted" if passes else "there is no backward"

    def check(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for every backward whose graph grows, or that fails for it."""
        windows = case.shared(Windows)
        for event in windows.events:
            if event.kind == "backward-error" and event.count("freed") and event.count("older"):
                yield self._failure(case, event)
        by_site: dict[int | None, list[RunEvent]] = {}
        for event in _passes(windows):
            by_site.setdefault(event.site, []).append(event)
        for site, passes in by_site.items():
            places = [i for i, one in enumerate(passes) if _counts(one)]
            counted = [passes[place] for place in places]
            nodes = [one.numbers["nodes"] for one in counted]
            if len(nodes) < self.measurements or not _grows(nodes):
                continue
            span = places[-1] - places[0]
            yield self.finding(
                case,
                message=(
                    "the graph reaches back through earlier steps and grows: from "
                    f"{nodes[0]:,.0f} to {nodes[-1]:,.0f} nodes in {span:,} passes"
                ),
                remedy=(
                    "detach() what is carried from step to step; add up loss.item(), not the loss"
                ),
                site=site,
                severity="error" if span >= self.error_passes else "warning",
                evidence={
                    "nodes_first": nodes[0],
                    "nodes_last": nodes[-1],
                    "growth": nodes[-1] / max(nodes[0], 1),
                    "passes": span,
                    "counts": len(nodes),
                    "limit": self.measurements,
                },
                count=len(passes),
                step=counted[0].step,
            )

    def _failure(self, case: Case, event: RunEvent) -> Finding:
        return self.finding(
            case,
            message=(
                "backward() fails: the graph reaches back into an earlier step, and that part of "
                "it is freed"
            ),
            remedy="detach() what is carried from step to step",
            site=event.site,
            evidence={"nodes": event.number("nodes")},
            step=event.step,
        )


def _passes(windows: Windows) -> list[RunEvent]:
    return [event for event in windows.events if event.kind == "backward"]


def _counts(event: RunEvent) -> bool:
    return event.number("nodes") is not None and bool(event.count("older"))


def _grows(nodes: Sequence[float]) -> bool:
    """Return whether counts never fall, and rise to the end; to where counting stops at least."""
    never_falls = all(one <= other for one, other in pairwise(nodes))
    rises = [place for place, (one, other) in enumerate(pairwise(nodes)) if one < other]
    at_end = bool(rises) and rises[-1] == len(nodes) - 2
    at_limit = bool(rises) and nodes[-1] >= _COUNTED_AT_MOST
    return never_falls and len(rises) > 1 and (at_end or at_limit)
