"""Finds what an unrolled loop does again and again, as the time steps of a recurrent model."""

from collections.abc import Hashable, Iterator, Sequence

from gradscope.frozen import dataclass

FEWEST_TURNS = 4
"""Fewer turns are as likely written out one by one."""

_LONGEST = 400
"""Maximum number of entries in a turn."""
_CANDIDATES = 8
"""Number of lengths that are tried at each position."""


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
