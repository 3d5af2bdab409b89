"""How numbers, names and shapes are written in text reports."""

import re

from gradscope.analysis.folding import Span
from gradscope.analysis.rows import ParameterRow, TensorRow
from gradscope.phrasing import aligned, short
from gradscope.recording.records import GradientStat
from gradscope.report.document import Share
from gradscope.report.page import UNICODE, Signs


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
