"""Converts values to cells that a person can read in the sqlite3 shell."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from gradscope.recording.records import GradientStat, Shape, TensorRef

_NAN = "NaN"
_SHAPE = re.compile(r"(\w+)\[([\d, ]*)\]")
_UNKNOWN = "?"

Cell = str | float | None

_remembered = lru_cache(maxsize=4_096)
"""Caches texts that many cells share, such as those of captured steps."""


def write_text(text: str) -> str:
    """Return text that UTF-8 can encode: half a surrogate pair, as in odd paths, is escaped."""
    # SQLite stores UTF-8 only, and sqlite3 refuses such a text with an error.
    return text.encode("utf-8", "backslashreplace").decode()


def spell(value: float) -> float | str:
    """Return a number for JSON: non-finite ones by name, as `float` reads them."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return _NAN
    return "Infinity" if value > 0 else "-Infinity"


def write_float(value: float | None) -> float | str | None:
    """Return a cell for a number. NaN is text, because SQLite would turn it into NULL."""
    return _NAN if value is not None and math.isnan(value) else value


def read_float(cell: float | str) -> float:
    """Return the number in a cell that is never NULL."""
    return math.nan if cell == _NAN else float(cell)


def read_optional_float(cell: str | float | None) -> float | None:
    """Return the number in a cell, None for NULL."""
    return None if cell is None else read_float(cell)


def write_shape(shape: Shape | None) -> str:
    """Return `float32[4, 8]`, `?` without a shape."""
    if shape is None:
        return _UNKNOWN
    return f"{shape.dtype}[{', '.join(map(str, shape.dims))}]"


@_remembered
def read_shape(cell: str) -> Shape:
    """Return the shape in a cell.

    Raises:
        ValueError: It contains none.
    """
    match = _SHAPE.fullmatch(cell)
    if match is None:
        raise ValueError(f"`{cell}` is not a shape")
    dims = tuple(int(size) for size in match[2].split(",") if size.strip())
    return Shape(dtype=match[1], dims=dims)


def write_shapes(shapes: Iterable[Shape | None]) -> str:
    """Return `float32[4, 8]; ?`."""
    return "; ".join(map(write_shape, shapes))


@_remembered
def read_shapes(cell: str) -> tuple[Shape | None, ...]:
    """Return the shapes in a cell."""
    return tuple(
        None if text == _UNKNOWN else read_shape(text) for text in cell.split("; ") if text
    )


def write_ref(ref: TensorRef | None) -> str | None:
    """Return `node:slot`."""
    return None if ref is None else f"{ref.node}:{ref.slot}"


def read_ref(cell: str) -> TensorRef:
    """Return the tensor in a cell."""
    node, slot = cell.split(":")
    return TensorRef(node=int(node), slot=int(slot))


def write_refs(refs: Iterable[TensorRef]) -> str:
    """Return `node:slot node:slot`."""
    return " ".join(f"{ref.node}:{ref.slot}" for ref in refs)


@_remembered
def read_refs(cell: str) -> tuple[TensorRef, ...]:
    """Return the tensors in a cell."""
    return tuple(map(read_ref, cell.split()))


def write_indices(indices: Iterable[int]) -> str:
    """Return the numbers, separated by spaces."""
    return " ".join(map(str, indices))


def read_indices(cell: str) -> tuple[int, ...]:
    """Return the numbers in a cell."""
    return tuple(map(int, cell.split()))


def write_names(names: Iterable[str]) -> str:
    """Return a JSON list: a name may contain any separator."""
    return json.dumps(list(names))


@_remembered
def read_names(cell: str) -> tuple[str, ...]:
    """Return the names in a cell."""
    # A tuple, because the cache returns the same object to all who ask.
    return tuple(json.loads(cell))


_ENCODE = json.JSONEncoder(allow_nan=False).encode


def write_numbers(numbers: Iterable[tuple[str, float]]) -> str:
    """Return a JSON object, non-finite numbers as the strings `NaN`, `Infinity`, `-Infinity`."""
    return _ENCODE({name: spell(value) for name, value in numbers})


# Writers may give whole numbers: readers get floats all the same.
_DECODE = json.JSONDecoder(object_pairs_hook=tuple, parse_int=float).decode


def read_numbers(cells: Iterable[str]) -> list[tuple[tuple[str, float], ...]]:
    """Return the named numbers of each cell.

    There are many such cells: decoding them as one text takes half the time.
    """
    text = ",".join(cells)
    found: list[tuple[tuple[str, float], ...]] = _DECODE(f"[{text}]")
    if '": "' in text:  # some are not finite, and are stored as names
        return [tuple((name, float(value)) for name, value in numbers) for numbers in found]
    return found


GRADIENT_COLUMNS = (
    "numel INTEGER",
    "norm REAL",
    "absolute_maximum REAL",
    "zero_share REAL",
    "nonfinite INTEGER",
    "sampled INTEGER",
    "lowest_exponent INTEGER",
    "magnitudes TEXT",
)
"""All NULL without a gradient; single NULLs were not measured."""

_NO_GRADIENT = (None,) * len(GRADIENT_COLUMNS)


def write_gradient(gradient: GradientStat | None) -> tuple[Cell, ...]:
    """Return the cells of a gradient's statistics."""
    if gradient is None:
        return _NO_GRADIENT
    return (
        gradient.numel,
        write_float(gradient.norm),
        write_float(gradient.absolute_maximum),
        write_float(gradient.zero_share),
        gradient.nonfinite,
        gradient.sampled,
        gradient.lowest_exponent,
        None if gradient.magnitudes is None else " ".join(map(str, gradient.magnitudes)),
    )


def read_gradient(cells: Sequence[Cell]) -> GradientStat | None:
    """Return the statistics in the cells."""
    numel, norm, maximum, zero_share, nonfinite, sampled, exponent, magnitudes = cells
    # A gradient always has its norm, and the other columns may be NULL with one, too.
    if norm is None:
        return None
    return GradientStat(
        numel=_whole(numel),
        norm=read_float(norm),
        absolute_maximum=read_optional_float(maximum),
        zero_share=read_optional_float(zero_share),
        nonfinite=None if nonfinite is None else _whole(nonfinite),
        sampled=None if sampled is None else bool(sampled),
        lowest_exponent=None if exponent is None else _whole(exponent),
        magnitudes=None if magnitudes is None else tuple(map(int, str(magnitudes).split())),
    )


def _whole(cell: Cell) -> int:
    # SQLite keeps to no declared type: a damaged cell may hold anything.
    if not isinstance(cell, int):
        raise ValueError(f"`{cell}` is not a whole number")
    return cell
