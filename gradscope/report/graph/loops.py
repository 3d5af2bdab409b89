"""Finds what unrolled loops do again and again, and the operations that modules repeat in them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from gradscope.analysis.recording_index import StepView
from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord
from gradscope.report.graph.tensor_links import module_of

FEWEST_TURNS = 4
"""Fewer turns are as likely written out one by one."""

_LONGEST = 400
"""Maximum number of entries in a turn."""

_CANDIDATES = 8
"""Number of lengths that are tried at each position."""

OUTSIDE = -1
"""Stands for everything outside all modules."""

Surroundings = Callable[[NodeRecord], Iterable[tuple[int, int | None]]]
"""Returns the modules around a node, each with the module in it that holds the node; None for the
module that made the node.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEntry:
    """An entry of a loop."""

    position: int
    """Index in the sequence."""
    turn: int
    """Turn of the loop, from 0."""
    offset: int
    """What it is in its turn: entries with equal offsets do the same."""


Loop = tuple[LoopEntry, ...]
"""Consecutive entries that repeat a pattern. Parts of it may be missing in the first and last turn,
as in the first step of a recurrent model, whose state has no history.
"""


def loops(keys: Sequence[Hashable]) -> Iterator[Loop]:
    """Yield the loops in a sequence, in order and without overlap.

    At each position the pattern that covers most entries counts, of equal ones the shortest.

    Args:
        keys: Entries in the order of the forward; equal ones do the same.
    """
    following = _following(keys)
    start = position = 0
    while position < len(keys):
        found = _pattern_at(keys, following, position)
        if found is None:
            position += 1
        else:
            loop = _whole(keys, found, start)
            yield loop
            start = position = loop[-1].position + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """Complete repetitions of a pattern."""

    first: int
    length: int
    turns: int

    @property
    def end(self) -> int:
        return self.first + self.length * self.turns


def _following(keys: Sequence[Hashable]) -> list[int | None]:
    """Return, by position, where the same entry comes next."""
    found: list[int | None] = [None] * len(keys)
    last: dict[Hashable, int] = {}
    for position, key in enumerate(keys):
        if key in last:
            found[last[key]] = position
        last[key] = position
    return found


def _pattern_at(
    keys: Sequence[Hashable], following: Sequence[int | None], first: int
) -> _Pattern | None:
    best: _Pattern | None = None
    again = following[first]
    for _ in range(_CANDIDATES):
        if again is None or again - first > _LONGEST:
            break
        length = again - first
        turns = _turns(keys, first, length)
        covered = 0 if best is None else best.length * best.turns
        if turns >= FEWEST_TURNS and length * turns > covered:
            best = _Pattern(first=first, length=length, turns=turns)
        again = following[again]
    return best


def _turns(keys: Sequence[Hashable], first: int, length: int) -> int:
    end = first + length
    while end < len(keys) and keys[end] == keys[end - length]:
        end += 1
    return (end - first) // length


def _whole(keys: Sequence[Hashable], found: _Pattern, start: int) -> Loop:
    """Return a pattern's repetitions with the incomplete turns before and after them."""
    pattern = keys[found.first : found.first + found.length]
    before = _incomplete(keys[start : found.first][::-1], list(enumerate(pattern))[::-1])
    after = _incomplete(keys[found.end :], list(enumerate(pattern)))
    # Turns begin where the first one does, also if that one is incomplete.
    shift = found.length - before[-1] if before else 0

    def entry(position: int, turn: int, offset: int) -> LoopEntry:
        moved = turn * found.length + offset + shift
        return LoopEntry(position=position, turn=moved // found.length, offset=offset)

    first = found.first - len(before)
    return (
        *(entry(first + at, -1, offset) for at, offset in enumerate(reversed(before))),
        *(
            entry(found.first + at, at // found.length, at % found.length)
            for at in range(found.length * found.turns)
        ),
        *(entry(found.end + at, found.turns, offset) for at, offset in enumerate(after)),
    )


def _incomplete(keys: Sequence[Hashable], pattern: Sequence[tuple[int, Hashable]]) -> list[int]:
    """Return the offsets of the entries that continue with a part of a pattern, in its order."""
    found: list[int] = []
    # One iterator for all keys: it goes on behind the last match, so the order holds.
    left = iter(pattern)
    for key in keys:
        offset = next((at for at, known in left if known == key), None)
        if offset is None:
            break
        found.append(offset)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn of a loop in which an operation is repeated."""

    loop: int
    """Index of the loop, in the order of their ends."""
    node: int
    """Node that represents the operation of all turns: the first of them."""
    number: int
    """Number of the turn, from 0."""


def unrolled(nodes: Sequence[NodeRecord], around: Surroundings) -> dict[int, Turn]:
    """Return the turn of each repeated operation, by node.

    A turn has the operations of a module itself, and the modules that it calls.

    Args:
        nodes: In the order of the forward.
        around: Where they are.
    """
    inside: dict[int, list[tuple[Hashable, int]]] = {}
    for node in nodes:
        if node.kind != "operation":
            continue
        for module, held in around(node):
            entries = inside.setdefault(module, [])
            key: Hashable = (node.operation, node.site) if held is None else held
            # The content of a called module is one entry.
            if held is None or not entries or entries[-1][0] != key:
                entries.append((key, node.index))
    turns: dict[int, Turn] = {}
    every = (
        (loop, found) for found in inside.values() for loop in loops([key for key, _ in found])
    )
    for number, (loop, entries) in enumerate(every):
        first: dict[int, int] = {}
        for entry in loop:
            key, index = entries[entry.position]
            # The key of an operation is a tuple, that of a module an index.
            if isinstance(key, tuple):
                drawn = first.setdefault(entry.offset, index)
                turns[index] = Turn(loop=number, node=drawn, number=entry.turn)
    return turns


def module_surroundings(
    report: Report, view: StepView, same: Callable[[int], int] = lambda module: module
) -> Surroundings:
    """Return where nodes are, without the lists of modules around them, which are never called.

    Args:
        report: Whose modules they are.
        view: The step.
        same: Maps a module to the one that is drawn for it.
    """
    paths: list[tuple[int, ...]] = []
    for row in report.modules:
        outer = () if row.parent is None else paths[row.parent]
        is_list = bool(row.path) and not row.calls and not row.own_parameters
        paths.append(outer if is_list else (*outer, row.index))

    def around(node: NodeRecord) -> Iterator[tuple[int, int | None]]:
        home = module_of(view, node)
        held: int | None = None
        for module in reversed((OUTSIDE, *(() if home is None else paths[home]))):
            yield module, held
            held = same(module)

    return around
