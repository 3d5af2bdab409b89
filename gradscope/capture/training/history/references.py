"""Finds references of a script to tensors with a history: variables, attributes, containers."""

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from inspect import CO_OPTIMIZED
from itertools import islice
from types import FrameType, SimpleNamespace
from typing import cast

from torch import Tensor, nn
from torch.autograd.graph import Node

from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import edges
from gradscope.capture.training.history.assignments import (
    Store,
    store_of_attribute,
    store_of_variable,
)
from gradscope.capture.training.locations import is_installed
from gradscope.frozen import dataclass

_MOST_ITEMS = 2_000
"""Maximum number of items visited in one variable, nested ones included."""
_MOST_OBJECTS = 300
"""Maximum number of objects whose attributes are visited."""
_MOST_MODULES = 2_000

_SEQUENCES = (list, tuple)
_CONTAINERS: tuple[type[Collection[object]], ...] = (set, frozenset, deque)
_NAMESPACES = (SimpleNamespace, Namespace)
_SHOWS_LOCALS = frozenset({"locals", "vars", "eval", "exec"})

_OWN = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes of every module; buffers are visited by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReference:
    """A variable or an attribute, and the operations that made its tensors."""

    name: str
    scope: int
    """`id` of the variable's code or namespace, or of the attribute's owner."""
    numbers: frozenset[int]
    """Sequence numbers of the operations."""
    nodes: tuple[Node, ...] = ()
    """The operations. They must not be kept."""
    frame: FrameType | None = None
    """Frame of a variable. It must not be kept."""
    kind: type | None = None
    """Class of the attribute's owner."""

    @property
    def key(self) -> tuple[int, str]:
        """Key that is equal in the next step."""
        return self.scope, self.name


def references(
    frames: Iterable[FrameType], modules: Iterable[nn.Module]
) -> Iterator[HistoryReference]:
    """Yield the references to tensors with a history.

    Args:
        frames: Running frames of the user's code, innermost first.
        modules: Modules of its models.
    """
    # Only attributes of the user's classes: a walk through all objects would be slow.
    objects = _Objects()
    seen = set[int]()
    for frame in frames:
        for scope, of, variables in ((id(frame.f_code), frame, _locals(frame)), _globals(frame)):
            if scope in seen:
                continue
            seen.add(scope)
            for name, value in _named(variables).items():
                objects.add(value)
                yield from _holder(name, scope, value, frame=of)
    for module in islice(modules, _MOST_MODULES):
        objects.add(module)
    yield from objects.references()


def name_of(wanted: object, frames: Iterable[FrameType]) -> str | None:
    """Return the name of a tensor in the user's code: `w`, `params[0]`, `w` for `self.w`, or None.

    Args:
        wanted: The tensor or other object to name.
        frames: Running frames of the user's code, innermost first.
    """
    for frame in frames:
        for variables in (_locals(frame), _globals(frame)[2]):
            own = _named(variables)
            attributes = [_attributes(one) for one in own.values() if _is_of_users_class(one)]
            for names in (own, *attributes):
                if found := _name_among(wanted, names):
                    return found
    return None


def _name_among(wanted: object, names: dict[str, object]) -> str | None:
    plain = (name for name, value in names.items() if value is wanted)
    found = next(plain, None)
    for name, value in names.items():
        found = found or next(
            (f"{name}[{key!r}]" for key, one in _numbered(value) if one is wanted), None
        )
    return found


def _numbered(value: object) -> Iterable[tuple[object, object]]:
    """Return the first items of a list or a dictionary, by index or key."""
    if type(value) is dict:
        return islice(value.items(), _MOST_ITEMS)
    if type(value) in _SEQUENCES:
        return islice(enumerate(cast("list[object]", value)), _MOST_ITEMS)
    return ()


def _locals(frame: FrameType) -> dict[str, object]:
    """Return the local variables of a running function; none for a module, whose are global."""
    code = frame.f_code
    if not code.co_flags & CO_OPTIMIZED:
        return {}
    # From 3.13 on, `f_locals` is a view that fills no dictionary.
    if sys.version_info >= (3, 13):
        return dict(frame.f_locals)
    if sys.gettrace() is not None or not _SHOWS_LOCALS.isdisjoint(code.co_names):
        return {}  # the script may hold the dictionary that this would fill
    shared = frame.f_locals
    variables = dict(shared)
    shared.clear()  # the frame would keep it, and all that the script releases
    return variables


def _globals(frame: FrameType) -> tuple[int, FrameType, dict[str, object]]:
    return id(frame.f_globals), frame, dict(frame.f_globals)


class _Objects:
    """Objects of the user's classes, and the modules of models, each once."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._seen = set[int]()
        self._others = 0

    def add(self, value: object) -> None:
        """Add an object if the script may use its attributes like variables."""
        # By type: reading `__class__` of some objects runs their code.
        is_module = issubclass(type(value), nn.Module)
        if id(value) in self._seen or not (is_module or _is_of_users_class(value)):
            return
        self._others += not is_module
        if is_module or self._others <= _MOST_OBJECTS:
            self._seen.add(id(value))
            self._waiting.append(value)

    def references(self) -> Iterator[HistoryReference]:
        """Yield their attributes, and those of the objects that they hold."""
        while self._waiting:
            owner = self._waiting.popleft()
            attributes = _named(_attributes(owner))
            buffers = attributes.get("_buffers")
            attributes |= _named(buffers) if isinstance(buffers, dict) else {}
            for name, value in attributes.items():
                if name not in _OWN:
                    self.add(value)
                    yield from _holder(name, id(owner), value, kind=type(owner))


def _named(variables: dict[str, object]) -> dict[str, object]:
    """Return the variables that a script may have named itself."""
    # Keys may be of any type if the script has written to such a dictionary.
    items = list(variables.items())
    return {k: value for k, value in items if isinstance(k, str) and not k.startswith("__")}


def _attributes(value: object) -> dict[str, object]:
    """Return an object's own attributes, without computed ones."""
    found: object = object.__getattribute__(value, "__dict__")
    return found if isinstance(found, dict) else {}


def _is_of_users_class(value: object) -> bool:
    kind = type(value)
    if kind in _NAMESPACES:
        return True
    # Past the script's metaclass, whose `__getattribute__` may run any code.
    module = type.__getattribute__(kind, "__module__")
    if module == "builtins" or not type.__getattribute__(kind, "__dictoffset__"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None) if isinstance(module, str) else None
    return module == "__main__" or (isinstance(file, str) and not is_installed(file))


def _holder(
    name: str,
    scope: int,
    value: object,
    *,
    frame: FrameType | None = None,
    kind: type | None = None,
) -> Iterator[HistoryReference]:
    nodes = tuple(_nodes(value))
    numbers = frozenset(number for node in nodes if (number := created(node)) is not None)
    if numbers:
        yield HistoryReference(
            name=name, scope=scope, numbers=numbers, nodes=nodes, frame=frame, kind=kind
        )


def _nodes(value: object) -> Iterator[Node]:
    for tensor in _tensors(value):
        yield from (edge.node for edge in edges(tensor) if edge.node is not None)


def store_of(reference: HistoryReference, frames: list[FrameType]) -> Store | None:
    """Return the statement by which a step assigned a reference, None if it is not found."""
    if reference.frame is not None:
        return store_of_variable(reference.name, reference.frame)
    if reference.kind is None:
        return None
    return store_of_attribute(reference.name, reference.kind, frames)


def _tensors(value: object) -> list[Tensor]:
    """Return the tensors in a value, also in containers; of many items the last ones."""
    found: list[Tensor] = []
    # By `id`, because a container may contain itself and need not be hashable.
    waiting, left, seen = [value], _MOST_ITEMS, set[int]()
    while waiting and left:
        one = waiting.pop()
        left -= 1
        if issubclass(type(one), Tensor):
            found.append(one)  # type: ignore[arg-type]
        elif id(one) not in seen:
            seen.add(id(one))
            waiting += _items(one)
    return found


def _items(value: object) -> Iterable[object]:
    """Return the items of a container without calling methods that the script may have written."""
    kind = type(value)
    if issubclass(kind, dict):
        return islice(reversed(dict.values(value)), _MOST_ITEMS)  # type: ignore[arg-type]
    if issubclass(kind, _SEQUENCES):
        last = slice(-_MOST_ITEMS, None)
        if issubclass(kind, list):
            return list.__getitem__(cast("list[object]", value), last)
        return tuple.__getitem__(cast("tuple[object, ...]", value), last)
    base = next((one for one in _CONTAINERS if issubclass(kind, one)), None)
    return () if base is None else islice(base.__iter__(value), _MOST_ITEMS)  # type: ignore[arg-type]
