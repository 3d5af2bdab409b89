"""Finds variables that keep tensors with their history, and operations computed only once."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType

from torch import nn
from torch.autograd.graph import Node

from gradscope.capture.source.lines import Line, created, sequence_number
from gradscope.capture.step.graph import MOST_NODES, behind, leaf_of, release
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.history.assignments import Store
from gradscope.capture.training.history.references import HistoryReference, references, store_of
from gradscope.capture.training.locations import NOWHERE, Location, Locations
from gradscope.recording.events import CarriedEvent, KeptEvent, named

_FIRST, _GROWTH = 5, 1.4
"""Every one of this many first steps is followed by a search, then every one after this many times
as many steps. A search takes some milliseconds."""

_RISES = 3
"""Number of searches, each with more of the past than all before, after which it is recorded."""

_Key = tuple[int, str]


_MOVING = (
    "Alias AsStrided Diagonal Expand Narrow Permute Select Slice Split Squeeze T Transpose Unbind "
    "Unsqueeze View"
)
"""Views."""

_VIEWS = frozenset(f"{name}Backward{number}" for name in _MOVING.split() for number in (0, 1))
"""Operations whose result shows each change of its input."""


@dataclass(slots=True)
class _Hoard:
    """What one variable kept so far."""

    most: int = 0
    """Largest number of operations of earlier steps."""
    rises: int = 0
    first_step: int = 0
    first: int = 0
    is_used: bool = False
    """Whether a backward has used the past that it keeps."""


class KeptHistory:
    """Counts the operations of earlier steps that variables keep.

    A parameter that has changed since shows that a step came between: a backward through the
    operations would give the gradient of weights that are gone.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._hoards: dict[_Key, _Hoard] = {}
        self._versions: dict[int, int] = {}
        """By `id` of a parameter: its version at the last search."""
        self._moment: int | None = None
        """Sequence number at the last search."""
        self._next = 0

    def is_due(self, step: int) -> bool:
        """Return whether a search is due in a step."""
        return step >= self._next

    def search(
        self,
        step: int,
        references: Iterable[HistoryReference],
        crossed: frozenset[int],
        frames: list[FrameType],
    ) -> None:
        """Count what each reference keeps of the time before the last search.

        Args:
            step: Number of steps so far.
            references: Variables and attributes, with the operations that made their tensors.
            crossed: Sequence numbers of the operations of earlier steps that this backward uses.
            frames: Running frames of the user's code.
        """
        self._next = step + 1 if step < _FIRST else int(step * _GROWTH) + 1
        moment, self._moment = self._moment, sequence_number()
        if moment is None:
            return
        walk = _Walk(moment, self._versions)
        for one in references:
            found = walk.past_of(one)
            if found:
                self._count(step, one, found, crossed, frames)
        # Nodes that are held would keep the graph from being freed by the script.
        walk.close()

    def remember(self, entries: Iterable[Entry]) -> None:
        """Remember the versions of the parameters until the next search."""
        parameters = (entry.parameter() for entry in entries)
        self._versions = {id(one): one._version for one in parameters if one is not None}

    def _count(
        self,
        step: int,
        reference: HistoryReference,
        past: frozenset[int],
        crossed: frozenset[int],
        frames: list[FrameType],
    ) -> None:
        hoard = self._hoards.setdefault(reference.key, _Hoard())
        # A past that a backward goes through is truncated on purpose or a finding of its own.
        hoard.is_used |= not crossed.isdisjoint(past)
        # A buffer of fixed size keeps a constant part of the past, which is no leak.
        if len(past) <= hoard.most:
            return
        if not hoard.rises:
            hoard.first_step, hoard.first = step, len(past)
        hoard.most, hoard.rises = len(past), hoard.rises + 1
        if hoard.rises < _RISES or hoard.is_used:
            return
        store = store_of(reference, frames)
        if store is not None:
            self._note(store, hoard, step)

    def _note(self, store: Store, hoard: _Hoard, step: int) -> None:
        numbers = named(
            KeptEvent,
            nodes_before=float(hoard.first),
            nodes=float(hoard.most),
            steps=float(step - hoard.first_step),
            repeated=float(store.is_repeated),
            sum=float(store.is_sum),
            collected=float(store.collects),
        )
        location = Location(store.line, store.line, None, 0)
        self._event_log.note("kept", location, numbers, subject=store.target)


class _Walk:
    """A walk through the graphs behind references, each node once."""

    def __init__(self, moment: int, versions: dict[int, int]) -> None:
        self._moment, self._versions = moment, versions
        self._seen: set[Node] = set()

    def past_of(self, reference: HistoryReference) -> frozenset[int]:
        """Return the operations of before that lead to a parameter which has changed since."""
        waiting = [node for node in reference.nodes if node not in self._seen]
        self._seen.update(waiting)
        past, is_outdated = set[int](), False
        while waiting and len(self._seen) < MOST_NODES:
            node = waiting.pop()
            number = created(node)
            is_past = number is not None and number < self._moment
            if number is not None and is_past:
                past.add(number)
            for following, _ in node.next_functions:
                if following is None:
                    continue
                is_outdated = is_outdated or (is_past and self._has_changed(following))
                if following not in self._seen:
                    self._seen.add(following)
                    waiting.append(following)
        return frozenset(past) if is_outdated else frozenset()

    def _has_changed(self, node: Node) -> bool:
        leaf = leaf_of(node)
        return leaf is not None and self._versions.get(id(leaf), leaf._version) != leaf._version

    def close(self) -> None:
        """Release the nodes."""
        self._seen.clear()


_MOST_SEARCHES = 6
"""Maximum number of searches without a result at a line whose graph reaches back."""

_ADVANCE_SEARCHES = 5
"""Maximum number of advance searches at a line whose graph does not reach back, but whose next one
may. Each takes some milliseconds."""


class History:
    """Finds references to the parts of a graph that an earlier step made.

    A tensor carried over by a step is still where it was stored when the next backward starts; or
    it was there at the previous backward, and another tensor has replaced it.

    After a result at a line, no further search is made there.
    """

    def __init__(self, event_log: EventLog, locations: Locations) -> None:
        self._event_log, self._locations = event_log, locations
        self._before: dict[Line | None, dict[_Key, frozenset[int]]] = {}
        """By line: references found when its previous backward started."""
        self._looks: Counter[Line | None] = Counter()
        self._advance_searches: Counter[Line | None] = Counter()
        self._found: set[Line | None] = set()
        self.is_waiting = False
        """Whether this graph requires a search at the next one."""
        self.kept = KeptHistory(event_log)

    def search(
        self,
        line: Line | None,
        frame: FrameType,
        crossed: frozenset[int],
        modules: list[nn.Module],
        step: int,
    ) -> None:
        """Search for references to operations of earlier steps, and record them.

        Args:
            line: Line of the backward.
            frame: Frame of its call.
            crossed: Sequence numbers of the operations of earlier steps that this step uses.
            modules: Modules of the script's models.
            step: Number of steps so far.
        """
        self.is_waiting = False
        seeks_carriers, seeks_kept = self._seeks_carriers(line, crossed), self.kept.is_due(step)
        if not (seeks_carriers or seeks_kept):
            return
        frames = self._locations.users(frame)
        try:
            now = list(references(frames, modules))
        except Exception:  # noqa: BLE001 - objects of a script's may do anything
            return
        if seeks_kept:
            self.kept.search(step, now, crossed, frames)
        if seeks_carriers:
            self._search_carriers(line, now, crossed, frames)

    def _seeks_carriers(self, line: Line | None, crossed: frozenset[int]) -> bool:
        if line in self._found or self._looks[line] == _MOST_SEARCHES:
            return False
        if not crossed:
            self._advance_searches[line] += 1
        return bool(crossed) or self._advance_searches[line] <= _ADVANCE_SEARCHES

    def _search_carriers(
        self,
        line: Line | None,
        now: list[HistoryReference],
        crossed: frozenset[int],
        frames: list[FrameType],
    ) -> None:
        if crossed:
            self._looks[line] += 1
            found = list(self._carriers(line, now, crossed, frames))
            if found:
                self._found.add(line)
                self._note(*max(found, key=lambda pair: pair[1].rank if pair[1] else ()))
            self.is_waiting = not found
        # Numbers only: nodes would keep the graphs of the last step alive.
        self._before[line] = {one.key: one.numbers for one in now}

    def _carriers(
        self,
        line: Line | None,
        now: list[HistoryReference],
        crossed: frozenset[int],
        frames: list[FrameType],
    ) -> Iterator[tuple[HistoryReference, Store | None]]:
        # A carried tensor may have been replaced since, so the references before count too.
        held = self._before.get(line, {})
        for one in now:
            before = held.get(one.key, frozenset())
            if not crossed.isdisjoint(one.numbers | before):
                yield one, store_of(one, frames)

    def _note(self, reference: HistoryReference, store: Store | None) -> None:
        if store is None:
            self._event_log.note("carried", NOWHERE, {}, subject=reference.name)
            return
        self._event_log.note(
            "carried",
            Location(store.line, store.line, None, 0),
            named(
                CarriedEvent,
                repeated=float(store.is_repeated),
                sum=float(store.is_sum),
                collected=float(store.collects),
            ),
            subject=store.target,
        )


class ReusedOperations:
    """The operations of earlier steps that the backward passes of each line use again."""

    def __init__(self) -> None:
        self._before: dict[Line | None, tuple[frozenset[int], dict[int, int]]] = {}
        """By line: the operations that its previous pass used, and the versions of the leaves
        behind them, by `id`."""

    def are_outdated(self, line: Line | None, root: Node, crossed: frozenset[int]) -> bool:
        """Return whether a graph uses numbers again that an older state of the weights made.

        Args:
            line: Line of the backward.
            root: Node that it starts from.
            crossed: Sequence numbers of the operations of earlier steps that the graph uses.
        """
        if not crossed:
            self._before.pop(line, None)
            return False
        used, versions = self._before.get(line, (frozenset[int](), dict[int, int]()))
        now = _versions(root, crossed)
        self._before[line] = (crossed, now)
        return not used.isdisjoint(crossed) and any(
            one in now and now[one] != version for one, version in versions.items()
        )


def _versions(root: Node, crossed: Collection[int]) -> dict[int, int]:
    """Return the versions of the leaves that some operations computed numbers from, by `id`."""
    # With the flag: a leaf may be reached by views alone and by a computation as well.
    seen: set[tuple[Node, bool]] = set()
    waiting = [
        (node, False)
        for node in behind([root], until=lambda node: created(node) in crossed)
        if created(node) in crossed
    ]
    versions: dict[int, int] = {}
    while waiting and len(seen) < MOST_NODES:
        node, is_computed = waiting.pop()
        leaf = leaf_of(node)
        if leaf is not None:
            if is_computed:
                versions[id(leaf)] = leaf._version
            continue
        is_computed = is_computed or node.name() not in _VIEWS
        for following, _ in node.next_functions:
            if following is not None and (following, is_computed) not in seen:
                seen.add((following, is_computed))
                waiting.append((following, is_computed))
    nodes = [node for node, _ in seen]
    seen.clear()
    release(nodes)
    return versions
