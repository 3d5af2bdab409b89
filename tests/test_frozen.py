"""The quick `dataclass` of frozen records, against the standard library's."""

import copy
import dataclasses
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import pytest

from gradscope.frozen import dataclass

Decorator = Callable[..., Callable[[type], type]]
BOTH = (dataclass, dataclasses.dataclass)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """A record that pickle finds by its name."""

    name: str
    size: float = 1.5
    kind: ClassVar[str] = "quick"


@dataclass(frozen=True, slots=True)
class Empty:
    """A record without a field."""


def made_by(decorator: Decorator, *, kw_only: bool) -> type:
    @decorator(frozen=True, slots=True, kw_only=kw_only)
    class Record:
        first: int
        second: tuple[float, ...] = (1.0,)
        shared: ClassVar[int] = 3

    return Record


def derived_by(decorator: Decorator, base: type) -> type:
    @decorator(frozen=True, slots=True, kw_only=True)
    class Derived(base):
        first: int = 7
        third: str = "x"

    return Derived


def outcome(work: Callable[[], object]) -> object:
    """Return what a call returns, or its exception as text."""
    try:
        return work()
    except TypeError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kw_only", [True, False])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"first": 1}),
        ((), {"first": 1, "second": (2.0, 3.0)}),
        ((1,), {}),
        ((1, (2.0,)), {}),
        ((), {}),
        ((), {"first": 1, "fourth": 2}),
        ((1,), {"first": 1}),
    ],
)
def test_instances_are_made_as_the_library_makes_them(args, kwargs, kw_only):
    quick = made_by(dataclass, kw_only=kw_only)
    usual = made_by(dataclasses.dataclass, kw_only=kw_only)

    def shown(kind: type) -> object:
        return outcome(lambda: repr(kind(*args, **kwargs)).replace("made_by.<locals>.", ""))

    assert shown(quick) == shown(usual)
    assert shown(quick) == shown(usual)  # the second instance comes from the compiled function


@pytest.mark.parametrize("base", BOTH, ids=["quick", "usual"])
@pytest.mark.parametrize("decorator", BOTH, ids=["quick", "usual"])
def test_either_decorator_derives_from_the_other(base, decorator):
    derived = derived_by(decorator, made_by(base, kw_only=True))
    usual = derived_by(dataclasses.dataclass, made_by(dataclasses.dataclass, kw_only=True))

    assert repr(derived(second=())) == repr(usual(second=()))
    assert [field.name for field in dataclasses.fields(derived)] == ["first", "second", "third"]
    assert derived.__match_args__ == usual.__match_args__
    assert derived.__slots__ == usual.__slots__
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        derived().first = 2


def test_records_are_equal_by_their_fields_and_their_class():
    first, second = Quick(name="a"), Quick(name="a", size=1.5)
    derived = derived_by(dataclass, Quick)

    assert first == second
    assert hash(first) == hash(second) == hash(("a", 1.5))
    assert first != Quick(name="b")
    assert first != derived(name="a")
    assert first != ("a", 1.5)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(())


def test_one_field_is_compared_as_a_tuple_of_one():
    @dataclass(frozen=True, slots=True)
    class Single:
        value: float

    not_a_number = float("nan")
    assert Single(not_a_number) == Single(not_a_number)
    assert Single(float("nan")) != Single(float("nan"))
    assert hash(Single(2.0)) == hash((2.0,))


@pytest.mark.parametrize("record", [Quick(name="a", size=2.0), Empty()])
def test_records_are_copied_and_pickled(record):
    assert copy.copy(record) == record
    assert copy.deepcopy(record) == record
    assert pickle.loads(pickle.dumps(record)) == record


def test_records_are_replaced_and_frozen():
    record = dataclasses.replace(Quick(name="a"), size=3.0)

    assert dataclasses.asdict(record) == {"name": "a", "size": 3.0}
    assert not hasattr(record, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'size'"):
        record.size = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'size'"):
        del record.size
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.unknown = 1


def test_abstract_methods_stay_abstract():
    @dataclass(frozen=True, slots=True)
    class Base(ABC):
        size: int = 1

        @abstractmethod
        def check(self) -> int: ...

    @dataclass(frozen=True, slots=True)
    class Whole(Base):
        def check(self) -> int:
            return self.size

    with pytest.raises(TypeError, match="abstract"):
        Base()
    assert Whole(2).check() == 2


def test_other_classes_are_left_to_the_library():
    @dataclass(frozen=True, slots=True)
    class Rich:
        found: list[int] = dataclasses.field(default_factory=list)
        file: str = dataclasses.field(default="", compare=False)

        def __post_init__(self) -> None:
            self.found.append(1)

        def __repr__(self) -> str:
            return "its own"

    @dataclass(slots=True)
    class Mutable:
        size: int = 1

    derived = derived_by(dataclass, made_by(dataclass, kw_only=True))
    assert Rich(file="a") == Rich(file="b")
    assert Rich().found == [1]
    assert repr(Rich()) == "its own"
    mutable = Mutable()
    mutable.size = 2
    assert mutable == Mutable(2)
    assert derived().third == "x"
