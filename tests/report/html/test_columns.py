import json
import math
import struct
from base64 import b64decode

from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.columns import numbers, places, single_numbers, texts

FLOATS = st.one_of(st.none(), st.floats())


def decoded(column):
    """What a browser finds: written after the format of typed arrays, not after the encoder."""
    code, size = ("d", 8) if "f8" in column else ("f", 4)
    raw = b64decode(column["f8" if code == "d" else "f4"])
    found = [value for (value,) in struct.iter_unpack(f"<{code}", raw)]
    assert len(raw) == size * len(found)
    for place in integers(column.get("none", "")):
        found[place] = None
    return found


def integers(text):
    return [value for (value,) in struct.iter_unpack("<i", b64decode(text))]


def same(one, other):
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


@given(st.lists(FLOATS))
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
    found = integers(places(values)["at"])
    assert [None if place < 0 else place for place in found] == values


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_texts_hold_every_word_once(values):
    column = texts(values)
    found = [None if at < 0 else column["words"][at] for at in integers(column["at"])]
    assert found == values
    assert len(column["words"]) == len({value for value in values if value is not None})
