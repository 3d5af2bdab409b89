"""The optimizers of a run, and which of them made a step.

One that is made anew in each epoch or fold, and one for each parameter, are many to torch and one
to a reader: those that a line makes again and again are a row.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.loop_windows import LoopWindow
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.records import Recording, Site

_Key = int | str
_SEVERAL = 4
"""A line that makes more optimizers than this makes one per part or turn, not a few for different
uses.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRow:
    """An optimizer of a run, or several that one line made, and their number of steps."""

    name: str
    """Variable that holds it; empty if none was found."""
    title: str
    """Title such as `AdamW(lr=0.001)`; only the class if it made no step, or used different rates.
    """
    site: Site | None
    """Line that made it. For steps without an optimizer, the line of the first step."""
    parameters: int | None
    """Number of parameters of all copies together; None if unknown."""
    steps: int
    made: int
    """Number of optimizers that the row represents."""


class Optimizers:
    """Every optimizer of a run, those that made steps first."""

    rows: tuple[OptimizerRow, ...]

    def __init__(self, recording: Recording, found: Iterable[LoopWindow]) -> None:
        records = recording.evidence_of(TrainedOptimizer)
        self._records = records
        self._first = first_alike(records)
        steps: Counter[_Key] = Counter()
        titles: dict[_Key, str] = {}
        by_hand: dict[_Key, int | None] = {}
        for window in found:
            if not window.is_finished:
                continue
            key, title = self._key(window), window.step.optimizer
            if window.last is not None:
                by_hand.setdefault(key, window.last.site)
            if not window.is_skipped:
                steps[key] += window.count
                if title is not None:
                    titles[key] = _joined(titles.get(key, title), title)
        steps = self._counted(recording, steps)
        idle = [first for first in dict.fromkeys(self._first) if first not in steps]
        keys = [*steps, *idle]
        self._positions = {key: position for position, key in enumerate(keys)}
        self.rows = tuple(
            replace(
                self._row(key, recording.sites, titles.get(key, ""), by_hand.get(key)),
                steps=steps[key],
            )
            for key in keys
        )

    def _counted(self, recording: Recording, steps: Counter[_Key]) -> Counter[_Key]:
        """Return the number of steps of each optimizer; about, where steps are missing."""
        if len(steps) == 1:
            kept = KeptSteps(recording)
            return Counter({key: kept.total if kept.summaries else n for key, n in steps.items()})
        return steps

    def position(self, window: LoopWindow) -> int | None:
        """Return the index of the optimizer of a window's step; None without a step."""
        return self._positions.get(self._key(window)) if window.is_finished else None

    def records_of(self, position: int) -> tuple[int | None, ...]:
        """Return the optimizers of the recording that a row represents."""
        key = next(key for key, at in self._positions.items() if at == position)
        # Steps without a known optimizer are summarised under None.
        return tuple(at for at, first in enumerate(self._first) if first == key) or (None,)

    def name(self, record: int) -> str:
        """Return the name of an optimizer of the recording; empty if unknown."""
        return _name(self._records[record]) if record < len(self._records) else ""

    def _key(self, window: LoopWindow) -> _Key:
        """Return the key that identifies the optimizer of a step: at least its class."""
        position = window.optimizer
        if position is None or position >= len(self._records):
            # Without an index, only the class keeps steps of different optimizers apart.
            return (window.step.optimizer or "").partition("(")[0]
        return self._first[position]

    def _row(self, key: _Key, sites: Sequence[Site], title: str, step: int | None) -> OptimizerRow:
        if not isinstance(key, int):
            site = None if step is None else sites[step]
            return OptimizerRow(name="", title=title, site=site, parameters=None, steps=0, made=1)
        record = self._records[key]
        alike = [position for position, first in enumerate(self._first) if first == key]
        held = {index for position in alike for index in self._records[position].parameters}
        return OptimizerRow(
            name=_name(record),
            title=title or record.class_name,
            site=None if record.site is None else sites[record.site],
            parameters=len(held),
            steps=0,
            made=len(alike),
        )


def _joined(title: str, other: str) -> str:
    """Return what an optimizer is called that was described so in its steps."""
    return title if title == other else title.partition("(")[0]


def first_alike(records: Sequence[TrainedOptimizer]) -> list[int]:
    """Return, by optimizer, the first that is one with it to a reader."""
    by_line: dict[tuple[str, str, int], list[int]] = {}
    firsts = list(range(len(records)))
    for position, record in enumerate(records):
        if record.site is not None:
            by_line.setdefault((record.class_name, record.name, record.site), []).append(position)
    for positions in by_line.values():
        replaces = all(records[position].replaced in positions for position in positions[1:])
        if replaces or len(positions) > _SEVERAL:
            for position in positions:
                firsts[position] = positions[0]
    for position, record in enumerate(records):
        if record.joined is not None:
            firsts[position] = firsts[record.joined]
    return firsts


def are_alike(records: Sequence[TrainedOptimizer]) -> bool:
    """Return whether two optimizers hold the same parameters; one made anew counts once."""
    held = [frozenset(records[position].parameters) for position in set(first_alike(records))]
    # Optimizers without known parameters would all look alike.
    held = [parameters for parameters in held if parameters]
    return len(set(held)) < len(held)


def _name(record: TrainedOptimizer) -> str:
    return "" if record.name == record.class_name else record.name
