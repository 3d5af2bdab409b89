"""Backward passes that search for an input, as an attack does, and fill gradients of parameters."""

from collections.abc import Iterator
from functools import cached_property

from gradscope.analysis.recording_index import RecordingIndex, captured_lines
from gradscope.analysis.windows import Series, Window
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, GradEvent, StepEvent, only
from gradscope.rules.context import RuleContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A step with gradients that a search for an input has left behind."""

    backward: BackwardEvent
    """Last pass of the search."""
    own: BackwardEvent
    """Backward of the loss that the step is for."""
    step: StepEvent
    passes: int
    """Number of passes of the search in this step."""
    count: int
    """Number of steps that it stands for."""


@dataclass(frozen=True)
class SearchingLines:
    """The lines of the captured backward passes, by whether they depend on such an input."""

    indexed: RecordingIndex

    @cached_property
    def _by_line(self) -> dict[int, set[bool]]:
        found: dict[int, set[bool]] = {}
        for captured, site in captured_lines(self.indexed.recording):
            if site is not None:
                own = captured.recording
                reaches = any(stat.reach == "gradient" for stat in own.parameter_stats)
                # A leaf that is no parameter requires grad because something searches for it, as an
                # attack for a perturbation.
                has_input = any(node.kind == "leaf" for node in own.nodes)
                found.setdefault(site, set()).add(has_input and reaches)
        return found

    @cached_property
    def searching(self) -> frozenset[int]:
        """Lines all of whose passes depend on an input, and reach parameters, too."""
        # A line whose passes differ is a function that serves the attack and the training.
        return frozenset(line for line, found in self._by_line.items() if found == {True})

    @cached_property
    def others(self) -> frozenset[int]:
        """Lines none of whose passes does."""
        return frozenset(line for line, found in self._by_line.items() if found == {False})


def searches_of(context: RuleContext, series: Series) -> Iterator[Search]:
    """Yield the steps of an optimizer whose gradients are in part those of a search."""
    lines = context.shared(SearchingLines)
    for window in series.windows if lines.searching else ():
        found = _search(lines, series, window)
        if found is not None:
            yield found


def _search(lines: SearchingLines, series: Series, window: Window) -> Search | None:
    zeros = window.zeros(series.optimizers)
    if not zeros:
        return None  # old gradients, which is another mistake
    since = [one for one in window.events if one.position > zeros[-1].position]
    passes = list(only(BackwardEvent, since))
    # A gradient penalty takes derivatives for an input, too, and is part of the loss on purpose.
    if len(passes) < 2 or any(only(GradEvent, since)) or passes[-1].site not in lines.others:
        return None
    searching = [one for one in passes[:-1] if one.site in lines.searching]
    if not searching:
        return None
    return Search(
        backward=searching[-1],
        own=passes[-1],
        step=window.step,
        passes=len(searching),
        count=window.count,
    )
