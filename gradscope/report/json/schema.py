"""JSON schemas, made from the shapes of the objects."""

import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from gradscope.report.json.shape import (
    SCHEMA_VERSION,
    Key,
    Marked,
    Min,
    Object,
    Pattern,
    Shape,
    keys_of,
    notes_of,
)

_GROWTH = "Objects without additionalProperties set to false grow in minor versions."

_NUMBER: Object = {
    "description": "A number; NaN and infinities, which JSON cannot hold, by name.",
    "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
}
_TYPES: Mapping[object, str] = {str: "string", int: "integer", bool: "boolean"}


def schema_of(shape: type[Shape], title: str) -> Object:
    """Return the schema of a whole report: its object, then those in it under `$defs`.

    Raises:
        ValueError: Two shapes have the same name.
    """
    definitions = _Definitions()
    whole = definitions.object_of(shape)
    description = f"Version {SCHEMA_VERSION}. {_GROWTH} {whole.pop('description')}"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        **whole,
        "$defs": {"number": _NUMBER, **definitions.found},
    }


def name_of(shape: type[Shape]) -> str:
    """Return the name of a shape's definition: `other_step` for `OtherStep`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", shape.__name__).lower()


class _Definitions:
    """Schemas of the shapes that were met, by name."""

    def __init__(self) -> None:
        self.found: Object = {}
        self._shapes: dict[str, type[Shape]] = {}

    def object_of(self, shape: type[Shape]) -> Object:
        """Return the schema of an object of a shape."""
        properties, required = self._properties(shape)
        return {
            "type": "object",
            "description": " ".join((shape.__doc__ or "").split()),
            "properties": properties,
            "required": required,
            **({} if shape.grows else {"additionalProperties": False}),
        }

    def _properties(self, shape: type[Shape]) -> tuple[Object, list[str]]:
        """Return the schemas of the keys, and which of them are never missing."""
        properties: Object = {}
        required: list[str] = []
        for key in keys_of(shape):
            if key.is_inline:
                found, inner = self._properties(_shape_in(key))
                properties |= found
                required += [] if _may_be_null(key.kind) else inner
            else:
                properties[key.name] = self._value(key.kind)
                required.append(key.name)
        return properties, required

    def _value(self, kind: object) -> Object:
        """Return the schema of a value of a type."""
        notes = notes_of(kind)
        if Marked("finite") in notes:
            found: Object = {"type": "number"}
        else:
            found = self._bare(get_args(kind)[0] if notes else kind)
        for note in notes:
            if isinstance(note, Min):
                found["minimum"] = note.value
            elif isinstance(note, Pattern):
                found["pattern"] = note.text
            elif isinstance(note, str):
                found["description"] = note
        return found

    def _bare(self, kind: object) -> Object:
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is float:
            return {"$ref": "#/$defs/number"}
        if kind in _TYPES:
            return {"type": _TYPES[kind]}
        if origin is Annotated:
            return self._value(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, UnionType):
            return self._union(arguments)
        if origin is tuple:
            length = (
                {} if Ellipsis in arguments else {"minItems": (n := len(arguments)), "maxItems": n}
            )
            return {"type": "array", "items": self._value(arguments[0]), **length}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._value(arguments[1])}
        assert isinstance(kind, type)
        assert issubclass(kind, Shape)
        return self._reference(kind)

    def _union(self, members: Sequence[object]) -> Object:
        """Return the schema of one of several; null is another type, or another word."""
        found = [self._value(one) for one in members if one is not type(None)]
        is_nullable = type(None) in members
        if all("enum" in one for one in found):
            parts = [word for one in members for word in get_args(one)]
            return {"enum": [*parts, *([None] if is_nullable else [])]}
        if is_nullable and len(found) == 1 and "type" in found[0]:
            return {**found[0], "type": [found[0]["type"], "null"]}
        # What stands beside a reference only narrows it, so null has to be a case of its own.
        return {"anyOf": [*found, *([{"type": "null"}] if is_nullable else [])]}

    def _reference(self, shape: type[Shape]) -> Object:
        name = name_of(shape)
        if self._shapes.setdefault(name, shape) is not shape:
            raise ValueError(f"two shapes are called `{name}`")
        if name not in self.found:
            self.found[name] = {}  # a shape may be within itself
            self.found[name] = self.object_of(shape)
        return {"$ref": f"#/$defs/{name}"}


def _may_be_null(kind: object) -> bool:
    return type(None) in get_args(get_args(kind)[0])


def _shape_in(key: Key) -> type[Shape]:
    """Return the shape of a key that is inline, with or without None as an alternative."""
    bare = get_args(key.kind)[0]
    [shape] = [one for one in get_args(bare) or (bare,) if one is not type(None)]
    assert isinstance(shape, type)
    assert issubclass(shape, Shape)
    return shape
