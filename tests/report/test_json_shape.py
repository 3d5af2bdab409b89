"""Values written in declared shapes, and the schemas made from the same declarations."""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Literal

import jsonschema
import pytest

from gradscope.report.json.schema import schema_of
from gradscope.report.json.shape import (
    INLINE,
    Count,
    Finite,
    Given,
    Min,
    Named,
    Of,
    Pattern,
    Shape,
    Within,
    finite,
    lines_of,
    object_text,
)
from tests.schemas import FOLDER, SCHEMAS, schema_text


@dataclass(kw_only=True)
class Inner:
    value: float | None = 0.5
    mark: str = ""


@dataclass(kw_only=True)
class Record:
    size: int = 3
    class_name: str = "Linear"
    inner: Inner | None = None
    items: tuple[Inner, ...] = ()
    counts: tuple[tuple[str, int], ...] = (("a", 1),)
    level: str = "note"
    code: str = "GS101"


class Small(Shape):
    """A part."""

    value: Annotated[float | None, "What was measured."]
    mark: Given


class Beside(Shape):
    """What is missing where there is no inner record."""

    inner_value: Annotated[float | None, Of("value")]


class Large(Shape, grows=True):
    """A whole."""

    numel: Annotated[Count, Of("size")]
    class_name: Annotated[str, Named("class")]
    inner: Small | None
    beside: Annotated[Beside | None, INLINE, Of("inner")]
    first: Annotated[float | None, Of("inner.value")]
    items: tuple[Small, ...]
    counts: dict[str, Annotated[int, Min(1)]]
    level: Literal["note", "error"] | Literal["unknown"] | None
    code: Annotated[str, Pattern("^GS[0-9]{3}$")]
    share: Annotated[Finite, Of(lambda record, context: record.size / context)]


SCHEMA = schema_of(Large, "Large things")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def written(**fields):
    return finite(Large.write(Record(**fields), 6))


def test_keys_are_written_in_their_order_under_their_names():
    assert written() == {
        "numel": 3,
        "class": "Linear",
        "inner": None,
        "first": None,
        "items": [],
        "counts": {"a": 1},
        "level": "note",
        "code": "GS101",
        "share": 0.5,
    }
    assert list(written(inner=Inner())) == [
        *("numel", "class", "inner", "inner_value", "first"),
        *("items", "counts", "level", "code", "share"),
    ]


def test_none_zero_nan_and_infinity_stay_apart():
    values = (None, 0.0, math.nan, math.inf, -math.inf)
    items = written(items=tuple(Inner(value=value) for value in values))["items"]
    assert [item["value"] for item in items] == [None, 0.0, "NaN", "Infinity", "-Infinity"]


def test_an_empty_string_that_was_not_given_is_null():
    items = written(items=(Inner(), Inner(mark="x")))["items"]
    assert [item["mark"] for item in items] == [None, "x"]


def test_a_value_may_bring_its_own_context():
    class Outer(Shape):
        """Something around it."""

        record: Annotated[Large, Of(lambda record, _: Within(record, 3))]

    assert Outer.write(Record(), 6)["record"]["share"] == 1.0


def test_a_key_that_its_record_does_not_have_is_an_error():
    class Misspelt(Shape):
        """Reads what is not there."""

        sise: Count

    with pytest.raises(AttributeError, match="sise"):
        Misspelt.write(Record())


def test_what_is_written_is_valid_by_the_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    inner = Inner(value=math.nan)
    for value in (written(), written(inner=inner, items=(inner, Inner(mark="x")))):
        VALIDATOR.validate(value)
    VALIDATOR.validate({**written(), "level": None, "new": 1})
    VALIDATOR.validate({**written(), "level": "unknown"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"numel": -1},
        {"numel": 0.5},
        {"class": None},
        {"counts": {"a": 0}},
        {"level": "none"},
        {"code": "GS1"},
        {"share": "NaN"},
        {"inner": {"value": 1.0}},
        {"inner": {"value": "nan", "mark": None}},
        {"inner": {"value": 1.0, "mark": None, "more": 1}},
        {"inner_value": "1"},
    ],
)
def test_the_schema_refuses_other_values(wrong):
    assert not VALIDATOR.is_valid({**written(), **wrong})


def test_the_schema_refuses_a_missing_key():
    whole = written()
    assert not any(
        VALIDATOR.is_valid({key: value for key, value in whole.items() if key != missing})
        for missing in whole
    )


def test_the_schema_tells_what_keys_and_objects_are():
    assert SCHEMA["$defs"]["small"]["description"] == "A part."
    assert SCHEMA["$defs"]["small"]["properties"]["value"]["description"] == "What was measured."


def test_two_shapes_of_one_name_are_refused():
    def small():
        class Small(Shape):
            """Another of this name."""

            value: int

        return Small

    class Both(Shape):
        """Holds both."""

        inner: Small
        item: small()

    with pytest.raises(ValueError, match="small"):
        schema_of(Both, "Both")


def test_lines_are_the_parts_of_the_object():
    whole = {"version": "1", "list": [{"a": 1}, {"a": 2}], "none": None, "one": {"b": 3}}
    assert list(lines_of(whole, {"one": "one", "none": "none", "list": "item", "other": "x"})) == [
        ("meta", {"version": "1"}),
        ("one", {"b": 3}),
        ("item", {"a": 1}),
        ("item", {"a": 2}),
    ]
    assert json.loads(object_text(whole)) == whole


@pytest.mark.parametrize("name", SCHEMAS)
def test_shipped_schemas_are_those_of_the_shapes(name):
    shipped = (FOLDER / name).read_text(encoding="utf-8")
    assert shipped == schema_text(name), "python tests/schemas.py writes them again"


def test_every_shipped_schema_has_a_shape():
    assert {path.name for path in FOLDER.iterdir()} == set(SCHEMAS)
