import json
import math
import struct
from base64 import b64decode

from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.columns import numbers, positions, single_numbers, texts

FLOATS = st.one_of(st.none(), st.floats(), st.integers(0, 2**40), st.just(-0.0))


def decoded(column):
    """What a browser finds: written after the description of columns, not after the encoder."""
    if "same" in column:
        value = column["same"]
        return [float(value) if isinstance(value, str) else value] * column["count"]
    if "at" in column:
        return [None if position < 0 else position for position in integers(column)]
    code = "d" if "f8" in column else "f"
    raw = b64decode(column["f8" if code == "d" else "f4"])
    found = [value for (value,) in struct.iter_unpack(f"<{code}", raw)]
    for (position,) in struct.iter_unpack("<i", b64decode(column.get("none", ""))):
        found[position] = None
    return found


def integers(column):
    code = {1: "b", 2: "h", 4: "i"}[column["bytes"]]
    return [value for (value,) in struct.iter_unpack(f"<{code}", b64decode(column["at"]))]


def same(one, other):
    if one is None or other is None:
        return one is other
    is_equal = one == other and math.copysign(1, one) == math.copysign(1, other)
    return is_equal or (math.isnan(one) and math.isnan(other))


@given(st.lists(FLOATS) | st.lists(st.integers(0, 300)) | FLOATS.map(lambda one: [one] * 3))
def test_numbers_are_exact_and_none_is_no_number(values):
    column = json.loads(json.dumps(numbers(values), allow_nan=False))
    found = decoded(column)
    assert len(found) == len(values)
    assert all(same(one, other) for one, other in zip(found, values, strict=True))


@given(st.lists(FLOATS))
def test_single_numbers_are_the_nearest_of_float32(values):
    found = decoded(single_numbers(values))
    for value, one in zip(values, found, strict=True):
        if value is None or not math.isfinite(value):
            assert same(value, one)
        elif abs(value) > 3.4028235677973366e38:
            assert one == math.copysign(math.inf, value)
        else:
            assert abs(one - value) <= max(abs(value) * 2**-24, 2**-150)


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**31 - 1))))
def test_places_hold_none_apart(values):
    assert decoded(positions(values)) == values


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_texts_hold_every_word_once(values):
    column = texts(values)
    found = [None if at < 0 else column["words"][at] for at in integers(column)]
    assert found == values
    assert len(column["words"]) == len({value for value in values if value is not None})


def test_small_numbers_take_little_room():
    flags = numbers([0, 1] * 500)
    assert flags["bytes"] == 1 and len(flags["at"]) < 1400
    assert len(json.dumps(numbers([0.25] * 10_000))) < 40
