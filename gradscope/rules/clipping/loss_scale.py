"""The loss scale of a run's gradient scaler, as it goes up and down."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from gradscope.analysis.optimizer_steps import RunEvent, Windows
from gradscope.rules.context import RuleContext


@dataclass(frozen=True)
class LossScale:
    """What the gradient scaler multiplies losses by."""

    context: RuleContext

    @cached_property
    def _updates(self) -> tuple[RunEvent, ...]:
        """The scaler's updates, in their order."""
        return tuple(
            event
            for event in self.context.shared(Windows).events
            if event.kind == "scaler-update" and event.number("scale_before") is not None
        )

    def at(self, event: RunEvent) -> float | None:
        """Return the scale when something happened; None where nothing tells it."""
        place = bisect_right(self._updates, event.place, key=lambda one: one.place)
        if place < len(self._updates):
            return self._updates[place].number("scale_before")
        return self._updates[-1].number("scale_after") if self._updates else None
