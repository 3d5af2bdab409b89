"""Columns of many values in JSON: exact, compact, and the same on every machine."""

import math
import struct
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

Json = str | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
"""A value of JSON; floats are finite."""


def numbers(values: Iterable[float | None]) -> Json:
    """Return float64 numbers as base64, with the places of None apart.

    NaN and infinities stay what they are.
    """
    given = list(values)
    encoded = _base64("d", (math.nan if value is None else value for value in given))
    missing = [place for place, value in enumerate(given) if value is None]
    return {"f8": encoded, **_none(missing)}


def single_numbers(values: Iterable[float | None]) -> Json:
    """Return numbers as float32, for pictures of so many that seven digits have to do."""
    given = list(values)
    encoded = _base64("f", (math.nan if value is None else _rounded(value) for value in given))
    missing = [place for place, value in enumerate(given) if value is None]
    return {"f4": encoded, **_none(missing)}


def places(values: Iterable[int | None]) -> Json:
    """Return places in other columns, from 0; None where there is none."""
    return {"at": _base64("i", (-1 if value is None else value for value in values))}


def texts(values: Iterable[str | None]) -> Json:
    """Return texts, each different one once."""
    words: dict[str, int] = {}
    at = [-1 if text is None else words.setdefault(text, len(words)) for text in values]
    return {"words": list(words), "at": _base64("i", at)}


def _none(missing: Sequence[int]) -> dict[str, Json]:
    return {"none": _base64("i", missing)} if missing else {}


def _rounded(value: float) -> float:
    """Return the number in float32, infinite where it is too large."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _base64(code: str, values: Iterable[float] | Iterable[int]) -> str:
    packed = array(code, list(chain(values)))
    # Browsers run on little-endian machines alone.
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        packed.byteswap()
    return b64encode(packed.tobytes()).decode("ascii")
