"""A `dataclass` that is made faster than the standard library's, for frozen records and rules.

The library compiles six functions for each class: half the time that `gradscope` takes to start.
This decorator compiles `__init__` alone, at the first instance, as a command makes instances of few
classes. The fields are the library's: `fields`, `replace` and `asdict` work, and a class of either
decorator may derive from one of the other.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**options: bool) -> Callable[[type], type]:
        """Make a dataclass as `dataclasses.dataclass` does."""
        return lambda cls: _made(cls, options)


_METHODS = {
    *("__init__", "__repr__", "__eq__", "__hash__"),
    *("__setattr__", "__delattr__", "__getstate__", "__setstate__"),
}


def _made(cls: type, options: Mapping[str, bool]) -> type:
    if not _is_plain(cls, options):
        return dataclasses.dataclass(**options)(cls)
    if cls.__doc__ is None:
        cls.__doc__ = ""  # the library would write one from the signature, which takes long
    with _bases_thawed(cls):
        make = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=True, kw_only=options.get("kw_only", False)
        )
        made: Any = make(cls)
    made.__dataclass_params__.frozen = True
    _add_methods(made, tuple(field.name for field in dataclasses.fields(made)))
    return made  # type: ignore[no-any-return]


def _is_plain(cls: type, options: Mapping[str, bool]) -> bool:
    """Return whether a class needs nothing but fields, some of them with a plain default."""
    is_known = options.keys() <= {"frozen", "slots", "kw_only"}
    if not (is_known and options.get("frozen") and options.get("slots")):
        return False
    if _METHODS & vars(cls).keys() or hasattr(cls, "__post_init__"):
        return False
    return not any(isinstance(value, Field) for value in vars(cls).values()) and all(
        field.default_factory is MISSING and field.init and field.compare
        for field in getattr(cls, "__dataclass_fields__", {}).values()
    )


@contextmanager
def _bases_thawed(cls: type) -> Iterator[None]:
    """Let the library derive a class that it does not know to be frozen."""
    found = (vars(base).get("__dataclass_params__") for base in cls.__mro__)
    frozen = [params for params in found if params is not None and params.frozen]
    for params in frozen:
        params.frozen = False
    try:
        yield
    finally:
        for params in frozen:
            params.frozen = True


def _add_methods(made: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401 - any class
    values = _getter(names)

    def __init__(self: object, *args: object, **kwargs: object) -> None:  # noqa: N807
        made.__init__ = _compiled(made)
        made.__init__(self, *args, **kwargs)

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return (
            values(self) == values(other) if self.__class__ is other.__class__ else NotImplemented
        )

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    methods = (__init__, __eq__, __hash__)
    for method in (*methods, __repr__, __setattr__, __delattr__, __getstate__, __setstate__):
        setattr(made, method.__name__, method)


def _getter(names: Iterable[str]) -> Callable[[object], tuple[object, ...]]:
    """Return a function that gives the values of attributes as a tuple."""
    names = tuple(names)
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _compiled(made: Any) -> Callable[..., None]:  # noqa: ANN401 - any class
    """Return the `__init__` of a class."""
    fields = dataclasses.fields(made)
    known: dict[str, object] = {"_set": object.__setattr__}
    known |= {f"_default_{field.name}": field.default for field in fields}
    written = {
        field.name: field.name + (f"=_default_{field.name}" * (field.default is not MISSING))
        for field in fields
    }
    positional = [written[field.name] for field in fields if not field.kw_only]
    named = [written[field.name] for field in fields if field.kw_only]
    parameters = ["self", *positional, *(["*"] if named else []), *named]
    body = [f"    _set(self, {field.name!r}, {field.name})" for field in fields] or ["    pass"]
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *body]), known)
    function: Any = known["__init__"]
    function.__qualname__ = f"{made.__qualname__}.__init__"
    return function  # type: ignore[no-any-return]


def __repr__(self: Any) -> str:  # noqa: N807, ANN401 - any record
    fields = dataclasses.fields(self)
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: object, name: str) -> None:  # noqa: N807
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[object]:  # noqa: N807, ANN401 - any record
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def __setstate__(self: Any, state: list[object]) -> None:  # noqa: N807, ANN401 - any record
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
