"""Finds attributes that were meant to be `requires_grad`."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache

from torch import nn

from gradscope.probes.context import ProbeContext
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.parameters import AttributeRecord
from gradscope.target import members

_RIGHT = "requires_grad"
_LIKENESS = 0.85
"""Minimum similarity of a misspelled name; 1 is equal."""


def probe_attributes(context: ProbeContext) -> str | None:
    """Record misspelled `requires_grad` attributes whose value contradicts the real one."""
    found: dict[tuple[str, bool, bool], tuple[list[str], list[int]]] = {}
    for name, value, path, parameters in (*_of_parameters(context), *_of_modules(context)):
        modules, positions = found.setdefault((name, value, path is not None), ([], []))
        modules += [] if path is None else [path]
        positions += parameters
    search = UserCodeSearch(context) if found else None
    for (name, value, _), (modules, positions) in found.items():
        context.assembler.note(
            AttributeRecord(
                name=name,
                value=value,
                modules=tuple(modules),
                parameters=tuple(dict.fromkeys(positions)),
                sites=() if search is None else search.assignments(name),
            )
        )
    return None


_Found = tuple[str, bool, str | None, list[int]]
"""Name, value, path of the module (None on a parameter), and contradicted parameters."""


def _of_parameters(context: ProbeContext) -> Iterator[_Found]:
    for position, parameter in enumerate(context.named.parameters):
        for name, value in _misspelt(vars(parameter)):
            # An attribute that agrees with what torch does has no effect that anyone could miss.
            if parameter.requires_grad != value:
                yield name, value, None, [position]


def _of_modules(context: ProbeContext) -> Iterator[_Found]:
    positions = {
        id(parameter): position for position, parameter in enumerate(context.named.parameters)
    }
    records = zip(context.named.modules, context.named.module_records, strict=True)
    for module, record in records:
        # On a module, `requires_grad` itself freezes nothing: it is no attribute of torch's.
        own = {name: value for name, value in vars(module).items() if name == _RIGHT}
        for name, value in (*_misspelt(vars(module)), *_flags(own)):
            opposite = [
                positions[id(p)] for p in members.parameters(module) if p.requires_grad != value
            ]
            if opposite and not _reads(type(module), name):
                yield name, value, record.path, opposite


def _misspelt(attributes: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    return (pair for pair in _flags(attributes) if pair[0] != _RIGHT and _is_like(pair[0]))


def _flags(attributes: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    for name, value in attributes.items():
        if isinstance(value, bool) or (type(value) is int and value in (0, 1)):
            yield name, bool(value)


@cache
def _is_like(name: str) -> bool:
    plain, right = (text.lower().replace("_", "") for text in (name, _RIGHT))
    if plain.removesuffix("ients").removesuffix("ient") in (right, "requiregrad", right + "s"):
        return True
    return SequenceMatcher(None, plain, right).ratio() >= _LIKENESS


def _reads(kind: type[nn.Module], attribute: str) -> bool:
    """Return whether a class reads the attribute, which is then a setting of its own."""
    return any(
        _is_read(base, attribute)
        for base in kind.__mro__
        if issubclass(base, nn.Module) and not base.__module__.startswith("torch.nn.modules")
    )


def _is_read(kind: type, attribute: str) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return True  # unknown
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        for node in ast.walk(tree)
    )
