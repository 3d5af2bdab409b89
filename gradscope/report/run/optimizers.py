"""The optimizers of a run, and which of them made a step."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradscope.recording.evidence.trained_optimizer import TrainedOptimizer
from gradscope.recording.records import Recording, Site
from gradscope.report.run.windows import Window

_Key = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRow:
    """An optimizer of a run, and how often it made a step."""

    name: str
    """The variable that holds it; empty where none was found."""
    title: str
    """As `AdamW(lr=0.001)`, by the time of its first step; its class where it made none."""
    site: Site | None
    """The line that made it."""
    parameters: int | None
    """How many it holds; None where that is not known."""
    steps: int


class Optimizers:
    """Every optimizer of a run, those that made steps first."""

    rows: tuple[OptimizerRow, ...]

    def __init__(self, recording: Recording, found: Sequence[Window]) -> None:
        records = recording.evidence_of(TrainedOptimizer)
        self._records = records
        steps = Counter(_key(window) for window in found if window.is_finished)
        titles: dict[_Key, str] = {}
        for window in found:
            if window.step.optimizer is not None:
                titles.setdefault(_key(window), window.step.optimizer)
        idle = [key for key in range(len(records)) if key not in steps]
        keys = [*steps, *idle]
        self._places = {key: place for place, key in enumerate(keys)}
        self.rows = tuple(
            replace(self._row(key, recording.sites, titles.get(key, "")), steps=steps[key])
            for key in keys
        )

    def place(self, window: Window) -> int | None:
        """Return the place of the optimizer that made a window's step; None where none did."""
        return self._places[_key(window)] if window.is_finished else None

    def name(self, record: int) -> str:
        """Return what an optimizer of the recording is called; empty where that is not known."""
        return _name(self._records[record]) if record < len(self._records) else ""

    def _row(self, key: _Key, sites: Sequence[Site], title: str) -> OptimizerRow:
        if not isinstance(key, int) or key >= len(self._records):
            return OptimizerRow(name="", title=title, site=None, parameters=None, steps=0)
        record = self._records[key]
        return OptimizerRow(
            name=_name(record),
            title=title or record.class_name,
            site=None if record.site is None else sites[record.site],
            parameters=len(record.parameters),
            steps=0,
        )


def _key(window: Window) -> _Key:
    """Return what tells the optimizer of a step from others: its class at least."""
    if window.optimizer is not None:
        return window.optimizer
    return (window.step.optimizer or "").partition("(")[0]


def _name(record: TrainedOptimizer) -> str:
    return "" if record.name == record.class_name else record.name
