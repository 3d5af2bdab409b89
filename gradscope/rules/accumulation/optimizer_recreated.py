"""GS314: optimizers that are made anew while training."""

import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import SourceRecord, TrainedOptimizer
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_EPOCH = re.compile("epoch(?!s)", re.IGNORECASE)
"""Names of values that belong to a single epoch."""
_FRESH_START = re.compile(r"client|federat|local_?(update|train)|(meta|inner)_|task", re.IGNORECASE)
"""Names of functions and classes whose training starts afresh: of a client, or of a task."""
_LOOP = re.compile(r"\s*for\s+\w*epoch\w*\b.* in ", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecreated(Rule):
    """The optimizer is recreated again and again.

    What it finds:
        `torch.optim.…(model.parameters())` inside the training loop: a new optimizer every step or
        epoch, over the same parameters as the previous one.

    Why it matters:
        Its state is lost each time: momentum starts from zero, Adam's averages and their bias
        correction restart, and a scheduler keeps an optimizer that no longer steps.

    How it is measured:
        The rule counts the optimizers that each line creates one after the other over the same
        parameters. It reports at least `replacements` of them, or `step_replacements` if each makes
        a single step, or if each makes the steps of one epoch: the line is in a function or a loop
        that is named after epochs, and all make the same number of steps and start with the same
        learning rate. It is a note for SGD without momentum, and in a function or class that is
        named after clients, local updates or tasks, which start afresh.

    How to fix it:
        Create the optimizer once, before the loop; change its learning rate with a scheduler or in
        `optimizer.param_groups`.

    When it may be wrong:
        If a fresh start is intended: a client's optimizer in each round of federated learning, or
        warm restarts.

    Source:
        torch documentation, `torch.optim`: optimizers hold state. Chosen thresholds: a few new ones
        are phases of training, as when layers are unfrozen.
    """

    code: ClassVar[str] = "GS314"
    name: ClassVar[str] = "optimizer-recreated"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    replacements: int = 4
    """Number of times an optimizer replaced another. Chosen: more than common training phases."""
    step_replacements: int = 2
    """Number of replacements if each optimizer made at most one step, or those of one epoch."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes optimizers anew."""
        windows = context.shared(Windows)
        found: dict[int | None, list[Series]] = {}
        for series in windows.series:
            if self._is_recreated(context, series):
                found.setdefault(windows.optimizers[series.optimizers[0]].site, []).append(series)
        for site, all_series in found.items():
            held = [
                windows.optimizers[position] for one in all_series for position in one.optimizers
            ]
            # An optimizer whose steps are part of another's is made with it and replaces nothing by
            # itself.
            records = [record for record in held if record.joined is None]
            made = max(one.generations for one in all_series)
            steps = sum(one.step_count for one in all_series)
            each = steps / len(records)
            by_epoch = _is_by_epoch(context, all_series[0])
            has_state = any(_has_state(one) for one in records)
            lost = "its state is lost each time" if has_state else "it has no state to lose"
            yield self.finding(
                context,
                message=(
                    f"{records[0].class_name} is recreated {made - 1:,} times over the same "
                    f"parameters, every {each:,.3g} {'step' if each == 1 else 'steps'}: {lost}"
                ),
                remedy="make the optimizer once, before the loop",
                site=site,
                severity="warning" if has_state and not _starts_afresh(context, site) else "note",
                parameters=dict.fromkeys(i for record in records for i in record.parameters),
                evidence={
                    "optimizers_made": made,
                    "steps": steps,
                    "steps_each": each,
                    "limit": self._limit(each, by_epoch=by_epoch),
                },
                count=made - 1,
                step=all_series[0].windows[0].step.step if all_series[0].windows else 0,
            )

    def _is_recreated(self, context: RuleContext, series: Series) -> bool:
        times = series.generations - 1
        if times < 0:
            return False
        each, by_epoch = series.step_count / series.generations, _is_by_epoch(context, series)
        limit = self._limit(each, by_epoch=by_epoch)
        context.measured(self.code, "replacements", times, limit, subject=series.name)
        return times > 0 and times >= limit

    def _limit(self, steps_each: float, *, by_epoch: bool) -> int:
        # No phase of a training lasts one step. A few replacements after many steps are phases,
        # such as the unfreezing of layers.
        return self.step_replacements if steps_each <= 1 or by_epoch else self.replacements


def _starts_afresh(context: RuleContext, site: int | None) -> bool:
    """Return whether the function that makes the optimizers is named after a fresh start."""
    line = context.site(site)
    return line is not None and _FRESH_START.search(line.function) is not None


def _is_by_epoch(context: RuleContext, series: Series) -> bool:
    """Return whether each of some optimizers makes the steps of one epoch, judged by names."""
    site = None if series.record is None else context.site(series.record.site)
    if site is None or not _is_named_after_epochs(context, site):
        return False
    by_optimizer: dict[int | None, list[float | None]] = {}
    for window in series.windows:
        by_optimizer.setdefault(window.step.optimizer, []).append(window.step.lr)
    lengths = {len(rates) for rates in by_optimizer.values()}
    # Stages of a curriculum have epochs in their names, too; they differ in their length or their
    # learning rate.
    return len(lengths) == 1 and len({rates[0] for rates in by_optimizer.values()}) == 1


def _is_named_after_epochs(context: RuleContext, site: Site) -> bool:
    """Return whether a line is in a function or right below a loop named after epochs."""
    if _EPOCH.search(site.function):
        return True
    for record in context.recording.evidence_of(SourceRecord):
        position = site.line - record.first
        if record.file != site.file or not 0 <= position < len(record.lines):
            continue
        indent = _indent(record.lines[position])
        # Farther below the loop's line, other lines may decide whether an optimizer is made in this
        # epoch.
        above = record.lines[max(0, position - 2) : position]
        return any(_LOOP.match(text) and _indent(text) < indent for text in above)
    return False


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _has_state(record: TrainedOptimizer) -> bool:
    """Return whether an optimizer remembers anything; of SGD, its momentum is not known."""
    return record.family != "sgd"
