"""A sequence of words with its repetitions folded: `zero`, (`forward`, `backward`) four times."""

from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 8
"""Words in the longest group that is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A word or a group of them, and how many times it comes in a row."""

    word: str
    """Empty of a group."""
    group: tuple["Fold", ...]
    least: int
    most: int
    """More than `least` where it stands for several sequences."""


Folds = tuple[Fold, ...]


def folded(words: Sequence[str]) -> Folds:
    """Return the words with repetitions as one."""
    folds: list[Fold] = []
    place = 0
    while place < len(words):
        length, times = _repetition(words, place)
        group = folded(words[place : place + length]) if length > 1 else ()
        word = "" if group else words[place]
        folds.append(Fold(word=word, group=group, least=times, most=times))
        place += length * times
    return tuple(folds)


def _repetition(words: Sequence[str], place: int) -> tuple[int, int]:
    """Return length and times of the group that covers most from here on, the shortest of equal."""
    best = (1, 1)
    for length in range(1, min(_LONGEST, (len(words) - place) // 2) + 1):
        times = _times(words, place, length)
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best


def _times(words: Sequence[str], place: int, length: int) -> int:
    group = words[place : place + length]
    times = 1
    while words[place + times * length : place + (times + 1) * length] == group:
        times += 1
    return times


def shape_of(folds: Folds) -> object:
    """Return what sequences have in common that differ in how often something is repeated."""
    return tuple(fold.word or shape_of(fold.group) for fold in folds)


def merged(one: Folds, other: Folds) -> Folds:
    """Return two sequences of one shape as one that says how often at least and at most."""
    return tuple(
        Fold(
            word=left.word,
            group=merged(left.group, right.group),
            least=min(left.least, right.least),
            most=max(left.most, right.most),
        )
        for left, right in zip(one, other, strict=True)
    )
