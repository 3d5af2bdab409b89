"""How numbers, shapes and names of operations and parameters are written in text reports."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache

from gradscope.analysis.folding import Span, joined_numbers
from gradscope.analysis.rows import ParameterRow, TensorRow
from gradscope.phrasing import aligned, short
from gradscope.recording.records import GradientStat
from gradscope.report.document import Share
from gradscope.report.page import UNICODE, Signs

_Columns = tuple[tuple[str, ...], ...]
"""Parts of names between dots; a part that represents several numbers holds all of them."""


def percent(share: float) -> str:
    """Return `7 %`, `0.4 %`; `100 %` for all alone, `0 %` for none."""
    # In whole percents, a small share would read as none, and one close to 1 as all.
    if 0 < share < 0.01:
        return f"{max(100 * share, 0.01):.2g} %"
    if 0.99 < share < 1:
        return f"{min(100 * share, 99.9):.1f} %"
    return f"{100 * share:.0f} %"


def number(value: float | None) -> str:
    """Return three significant digits; `-` for None."""
    return short(value)


def figure(value: float | None, signs: Signs = UNICODE) -> str:
    """Return `0.120`, `1,230`, `4.56e-7`; `0` for exactly zero alone, a dash for None."""
    return signs.dash if value is None else aligned(value)


def broken_text(gradient: GradientStat) -> str:
    """Return `3 of 100 non-finite`, of a gradient that is; without numbers if none were counted."""
    if gradient.nonfinite is None:
        return "non-finite"
    return f"{gradient.nonfinite:,} of {gradient.numel:,} non-finite"


def span_figure(span: Span | None, signs: Signs = UNICODE) -> str:
    """Return `0.12…3.45`, or one number if both ends look the same."""
    if span is None:
        return signs.dash
    low, high = figure(span.low), figure(span.high)
    return low if low == high else f"{low}{signs.ellipsis}{high}"


def short_count(count: int) -> str:
    """Return `412`, `28.3k`, `1.24M`, `7.24B`."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        # 999,950 is 1.00M, not 1000k.
        if count >= size * 0.9995:
            scaled = count / size
            positions = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{positions}f}{letter}"
    return str(count)


_BACKWARD = re.compile(r"Backward\d*$")


def shape_text(row: ParameterRow | TensorRow) -> str:
    """Return `float32[4, 8]`, or `-` if the shape is unknown."""
    return "-" if row.shape is None else f"{row.dtype}[{', '.join(map(str, row.shape))}]"


def operation_text(operation: str) -> str:
    """Return autograd's name of an operation as people know it: `Mean` for `MeanBackward1`."""
    return _BACKWARD.sub("", operation) or operation


def made_by(row: TensorRow) -> str:
    """Return the operation that made a tensor, or the kind of a tensor without one."""
    # Both an input that requires grad and a parameter of another model are such leaves.
    return "leaf outside the model" if row.kind == "leaf" else operation_text(row.operation)


def tensor_text(row: TensorRow) -> str:
    """Return `Addmm in blocks.0.mlp`, with the call's number after a module's first."""
    if row.module is None:
        return made_by(row)
    call = f" (call {row.call})" if row.call else ""
    return f"{made_by(row)} in {row.module or 'the model'}{call}"


def value_text(value: float | Share | Span | None) -> str:
    """Return how a number of a document is written: a count with commas, a share in percent."""
    match value:
        case Share():
            return percent(value.value)
        case Span():
            return span_figure(value)
        case int():
            return f"{value:,}"
        case _:
            return figure(value)


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
