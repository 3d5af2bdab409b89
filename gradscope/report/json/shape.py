"""Shapes of JSON objects, and how values are written in them.

A shape is a class whose annotations are the keys of an object, in order. A key reads the attribute
of its name from the value that is written. `Annotated` says what else holds: `Of` where it reads
from, a string what it means, in the schema.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

from gradscope.frozen import dataclass
from gradscope.recording.encoding import spell

SCHEMA_VERSION = "1.0"

Json = Mapping[str, "Json"] | Sequence["Json"] | str | float | bool | None

Object = dict[str, Json]

Read = Callable[..., object]
"""Returns a key's value from the source object and its context, such as the report."""


@dataclass(frozen=True, slots=True)
class Of:
    """Source of a key: the path of an attribute, empty for the value itself, or `Read`."""

    source: str | Read = ""


@dataclass(frozen=True, slots=True)
class Named:
    """Name of a key that Python reserves."""

    name: str


@dataclass(frozen=True, slots=True)
class Min:
    """Smallest value of a number."""

    value: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """Regular expression that a string matches."""

    text: str


@dataclass(frozen=True, slots=True)
class Within:
    """A value that is written in another context than the object it is in."""

    value: object
    context: object


Mark = Literal["finite", "inline", "given"]
"""`finite`: the number is never NaN or infinite. `inline`: the object's keys become keys of the
enclosing object, and are missing if it is None. `given`: an empty string is null.
"""


@dataclass(frozen=True, slots=True)
class Marked:
    """Special properties of a key."""

    mark: Mark


INLINE = Marked("inline")

Count = Annotated[int, Min(0)]

Positive = Annotated[int, Min(1)]

Finite = Annotated[float, Marked("finite")]

Share = Annotated[Finite, Min(0)]

Given = Annotated[str | None, Marked("given")]


class Shape:
    """Base of all shapes. Objects of shapes that grow may have further keys in minor versions."""

    grows = False

    def __init_subclass__(cls, *, grows: bool = False) -> None:
        """Keep whether further keys may come."""
        cls.grows = grows

    @classmethod
    def write(cls, value: object, context: object = None) -> Object:
        """Return a value as an object of this shape.

        Args:
            value: What the keys are read from.
            context: Second argument of keys that read by a function.
        """
        found: Object = {}
        for key in keys_of(cls):
            written = key.write(key.read(value, context), context)
            if not key.is_inline:
                found[key.name] = written
            elif isinstance(written, dict):
                found.update(written)
        return found


Write = Callable[[object, object], Json]
"""Returns a value as JSON, given its context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of an object."""

    name: str
    kind: object
    """Type of the value, with its annotations."""
    read: Read
    write: Write

    @property
    def is_inline(self) -> bool:
        """Whether its value's keys are keys of the object."""
        return INLINE in notes_of(self.kind)


# To resolve the annotations of a shape takes longer than to write an object.
_known: dict[type[Shape], tuple[Key, ...]] = {}


def keys_of(shape: type[Shape]) -> tuple[Key, ...]:
    """Return the keys of a shape, in order."""
    if shape not in _known:
        _known[shape] = tuple(_keys(shape))
    return _known[shape]


def _keys(shape: type[Shape]) -> Iterator[Key]:
    for field, kind in get_type_hints(shape, include_extras=True).items():
        notes = notes_of(kind)
        names = [note.name for note in notes if isinstance(note, Named)]
        sources = [note.source for note in notes if isinstance(note, Of)]
        source = sources[0] if sources else field
        yield Key(
            name=names[0] if names else field,
            kind=kind,
            read=_attribute(source) if isinstance(source, str) else source,
            write=_writer(kind),
        )


def notes_of(kind: object) -> tuple[object, ...]:
    """Return the annotations of a type."""
    return get_args(kind)[1:] if get_origin(kind) is Annotated else ()


def _attribute(path: str) -> Read:
    """Return what reads an attribute; None where an object on the way to it is None."""
    names = path.split(".") if path else []

    def read(value: object, _: object) -> object:
        for name in names:
            value = None if value is None else getattr(value, name)
        return value

    return read


def _writer(kind: object) -> Write:
    """Return what writes values of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if Marked("given") in notes_of(kind):
        return lambda value, _: str(value) if value else None
    if origin is Annotated:
        return _writer(arguments[0])
    if origin in (Union, UnionType):
        return _optional([_writer(one) for one in arguments if one is not type(None)])
    if origin is tuple:
        return _items(_writer(arguments[0]))
    if origin is dict:
        return _mapping(_writer(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, Shape):
        return _object(kind)
    return _plain


def _plain(value: object, _: object) -> Json:
    return value  # type: ignore[return-value]  # a string, number or flag by its declaration


def _optional(members: Sequence[Write]) -> Write:
    if all(member is _plain for member in members):
        return _plain
    [write] = members
    return lambda value, context: None if value is None else write(value, context)


def _items(write: Write) -> Write:
    def written(value: object, context: object) -> Json:
        # Readers may be generators.
        assert isinstance(value, Sequence | Iterator)
        return [write(item, context) for item in value]

    return written


def _mapping(write: Write) -> Write:
    def written(value: object, context: object) -> Json:
        pairs: dict[str, object] = dict(value)  # type: ignore[call-overload]  # or pairs of it
        return {name: write(item, context) for name, item in pairs.items()}

    return written


def _object(shape: type[Shape]) -> Write:
    def written(value: object, context: object) -> Json:
        if isinstance(value, Within):
            return shape.write(value.value, value.context)
        return shape.write(value, context)

    return written


def finite(value: Json) -> Json:
    """Return the value with NaN and infinities, which JSON cannot hold, as their names."""
    if isinstance(value, float):
        return spell(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(item) for item in value]
    return value


def indented(value: Json, *, ensure_ascii: bool = True) -> str:
    """Return a value as JSON, a key or an item a line."""
    return json.dumps(finite(value), indent=2, ensure_ascii=ensure_ascii, allow_nan=False)


def object_text(whole: Object) -> str:
    """Return an object as JSON, a row of its lists a line: two can be compared by `diff`."""
    parts = ",\n".join(f" {_compact(key)}: {_part(part)}" for key, part in whole.items())
    return f"{{\n{parts}\n}}"


def lines_of(whole: Object, kinds: Mapping[str, str]) -> Iterator[tuple[str, Object]]:
    """Yield the parts of an object, each after its kind; the keys without a kind are the first.

    Args:
        whole: A whole report.
        kinds: Kind of a line by key, in the order of the lines. A list is a line an item.
    """
    yield "meta", {key: part for key, part in whole.items() if key not in kinds}
    for key, kind in kinds.items():
        part = whole.get(key)
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, dict):
                yield kind, item


def lines_text(lines: Iterable[tuple[str, Object]]) -> str:
    """Return objects as JSON, each on a line of its own that `kind` names."""
    return "\n".join(_compact({"kind": kind, **part}) for kind, part in lines)


def _part(part: Json) -> str:
    if not isinstance(part, list) or not part:
        return _compact(part)
    rows = ",\n".join(f"  {_compact(row)}" for row in part)
    return f"[\n{rows}\n ]"


def _compact(value: Json) -> str:
    return json.dumps(finite(value), allow_nan=False)
