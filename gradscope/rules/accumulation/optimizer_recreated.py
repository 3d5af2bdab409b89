"""GS314: optimizers that are made anew while training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.recording.evidence.optimizers import TrainedOptimizer
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


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
        a single step. SGD without momentum is a note.

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
    """Number of replacements if each optimizer made at most one step."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes optimizers anew."""
        windows = context.shared(Windows)
        found: dict[int | None, list[Series]] = {}
        for series in windows.series:
            if self._is_recreated(series):
                found.setdefault(windows.optimizers[series.optimizers[0]].site, []).append(series)
        for site, all_series in found.items():
            held = [
                windows.optimizers[position] for one in all_series for position in one.optimizers
            ]
            records = [record for record in held if record.joined is None]
            made = max(one.generations for one in all_series)
            steps = sum(len(one.windows) for one in all_series)
            each = steps / len(records)
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
                severity="warning" if has_state else "note",
                parameters=dict.fromkeys(i for record in records for i in record.parameters),
                evidence={
                    "optimizers_made": made,
                    "steps": steps,
                    "steps_each": each,
                    "limit": self._limit(each),
                },
                count=made - 1,
                step=all_series[0].windows[0].step.step if all_series[0].windows else 0,
            )

    def _is_recreated(self, series: Series) -> bool:
        times = series.generations - 1
        return times > 0 and times >= self._limit(len(series.windows) / series.generations)

    def _limit(self, steps_each: float) -> int:
        return self.step_replacements if steps_each <= 1 else self.replacements


def _has_state(record: TrainedOptimizer) -> bool:
    """Return whether an optimizer remembers anything; of SGD, its momentum is not known."""
    return record.family != "sgd"
