"""Folds the names of many parameters into few: `encoder.*`, `layers.[0-11].attn.q.weight`."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache

from gradscope.analysis.folding import joined_numbers

_Columns = tuple[tuple[str, ...], ...]
"""Parts of names between dots; a part that represents several numbers holds all of them."""


def folded_names(names: Iterable[str], every: Iterable[str]) -> tuple[str, ...]:
    """Return patterns that match the names and no others.

    Args:
        names: Fully qualified names of parameters.
        every: Those of the whole model: a module that is among `names` with all of its parameters
            becomes `module.*`.
    """
    whole = dict.fromkeys(_whole_modules(tuple(names), tuple(every)))
    return tuple(_without_numbers([_columns(name) for name in whole]))


def _whole_modules(names: Sequence[str], every: tuple[str, ...]) -> Iterator[str]:
    """Yield each name, or its outermost module whose parameters are all in `names`."""
    given, all_below = _below(dict.fromkeys(names)), _below_in_model(every)
    for name in names:
        modules = _modules(name)
        # The single parameter of a module is clearer by its own name.
        yield next((f"{m}.*" for m in modules if given[m] == all_below[m] > 1), name)


@lru_cache(maxsize=4)  # every finding of a report asks for the same
def _below_in_model(every: tuple[str, ...]) -> Counter[str]:
    return _below(dict.fromkeys(every))


def _below(names: Iterable[str]) -> Counter[str]:
    return Counter(module for name in names for module in _modules(name))


def _modules(name: str) -> list[str]:
    """Return the modules around a parameter, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _columns(name: str) -> _Columns:
    return tuple((part,) for part in name.split("."))


def _without_numbers(names: list[_Columns]) -> Iterator[str]:
    """Yield the names, joined if they differ in one number, from the last number on."""
    for position in reversed(range(max(map(len, names), default=0))):
        alike: dict[Hashable, list[_Columns]] = {}
        for name in names:
            has_number = len(name) > position and name[position][0].isdecimal()
            around = (name[:position], name[position + 1 :]) if has_number else name
            alike.setdefault(around, []).append(name)
        names = [_joined(group, position) for group in alike.values()]
    for name in names:
        yield ".".join(map(_part, name))


def _joined(names: list[_Columns], position: int) -> _Columns:
    """Return names that differ in one part as one."""
    first = names[0]
    if len(names) == 1:
        return first
    numbers = tuple(number for name in names for number in name[position])
    return (*first[:position], numbers, *first[position + 1 :])


def _part(column: tuple[str, ...]) -> str:
    if len(column) == 1:
        return column[0]
    return f"[{joined_numbers({int(number) for number in column})}]"
