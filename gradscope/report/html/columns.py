"""Columns of many values in JSON, exact and compact, and the columns of a report's modules."""

import math
import struct
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from gradscope.analysis.report import Report

Json = str | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
"""A value of JSON; floats are finite."""

_INTEGERS = ((1, "b", 2**7), (2, "h", 2**15), (4, "i", 2**31))
"""Bytes, type code and the first integer that is too large."""


def numbers(values: Iterable[float | None]) -> Json:
    """Return numbers exactly as they are."""
    given = list(values)
    # A column of one number, as of a constant learning rate, needs no bytes a row.
    if len(given) > 1 and len({_identity(value) for value in given}) == 1:
        return {"same": _spelled(given[0]), "count": len(given)}
    # Counts take one or two bytes each as integers, and eight as floats.
    if all(value is None or _is_index(value) for value in given):
        return positions(None if value is None else int(value) for value in given)
    return _floats("f8", "d", given)


def single_numbers(values: Iterable[float | None]) -> Json:
    """Return numbers as float32, for charts with so many that seven digits must do."""
    return _floats("f4", "f", [None if value is None else _rounded(value) for value in values])


def positions(values: Iterable[int | None]) -> Json:
    """Return integers from 0 to 2**31 - 1, such as indices in other columns."""
    # A typed array has no null: no index is negative, so -1 stands for it.
    given = [-1 if value is None else value for value in values]
    return _integers(given)


def texts(values: Iterable[str | None]) -> Json:
    """Return texts, each different one once."""
    words: dict[str, int] = {}
    at = [-1 if text is None else words.setdefault(text, len(words)) for text in values]
    return {"words": list(words), **_integers(at)}


def _floats(name: str, code: str, given: Sequence[float | None]) -> dict[str, Json]:
    # A typed array has no null, and NaN may be a number of the report: missing rows are listed
    # apart.
    missing = [position for position, value in enumerate(given) if value is None]
    column: dict[str, Json] = {
        name: _base64(code, [math.nan if value is None else value for value in given])
    }
    if missing:
        column["none"] = _base64("i", missing)
    return column


def _integers(given: Sequence[int]) -> dict[str, Json]:
    largest = max(given, default=0)
    size, code = next((size, code) for size, code, beyond in _INTEGERS if largest < beyond)
    return {"at": _base64(code, given), "bytes": size}


def _is_index(value: float) -> bool:
    # An integer would lose the sign of minus zero.
    return 0 <= value < 2**31 and value == int(value) and math.copysign(1.0, value) > 0


def _identity(value: float | None) -> object:
    """Return a key that separates numbers which compare equal, and equates NaN with itself."""
    return value if value is None or (math.isfinite(value) and value) else str(value)


def _spelled(value: float | None) -> Json:
    return value if value is None or math.isfinite(value) else str(value)


def _rounded(value: float) -> float:
    """Return the number in float32, infinite if it is too large."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        # struct refuses what a cast to float32 would make infinite.
        return math.copysign(math.inf, value)


def _base64(code: str, values: Sequence[float] | Sequence[int]) -> str:
    packed = array(code, values)
    # Typed arrays have the byte order of the machine, which is little endian wherever browsers run.
    if sys.byteorder == "big":
        packed.byteswap()
    return b64encode(packed.tobytes()).decode("ascii")


class ModuleIndices:
    """The rows of a report's modules, found by path or alias."""

    def __init__(self, report: Report) -> None:
        self._rows = report.modules
        self._positions: dict[str, int] = {}
        for row in report.modules:
            # Models of a script may have equal paths: the run's names mean the first one.
            for path in (row.path, *row.aliases):
                self._positions.setdefault(path, row.index)

    def of(self, path: str | None) -> int | None:
        """Return the row of a path; None for no path, and one that no module has."""
        return None if path is None else self._positions.get(path)

    def each(self, paths: Iterable[str | None]) -> list[int | None]:
        """Return the rows of paths."""
        return [self.of(path) for path in paths]

    def above(self, module: int | None) -> tuple[int, ...]:
        """Return a module after those around it, the outermost first."""
        return () if module is None else self._chains[module]

    @cached_property
    def _chains(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for row in self._rows:
            chain, at = [row.index], row.parent
            while at is not None and at not in found:
                chain.append(at)
                at = self._rows[at].parent
            above = () if at is None else found[at]
            found[row.index] = (*above, *reversed(chain))
        return found


def module_columns(report: Report) -> dict[str, Json]:
    """Return a column for each property of modules that charts use.

    `parent` is the index of the parent's row.
    """
    rows = report.modules
    return {
        "path": texts(row.path for row in rows),
        "class": texts(row.class_name for row in rows),
        "parent": positions(row.parent for row in rows),
        "parameters": numbers(row.parameters for row in rows),
        "numel": numbers(row.numel for row in rows),
        "norm": numbers(row.grad_norm for row in rows),
        "weight": numbers(row.weight_norm for row in rows),
        "gain": numbers(next((call.gain for call in row.calls), None) for row in rows),
    }
