"""Finds the lists of words by which a file chooses parameters by their names."""

import ast
import functools
from collections.abc import Iterator
from typing import NamedTuple

from gradscope.capture.source.statements import tree_of

_MOST = 16
"""Maximum number of lists of a file."""


class NameFilter(NamedTuple):
    """Words, one of which a name has to contain."""

    line: int
    """Line of the list."""
    words: tuple[str, ...]


@functools.lru_cache(maxsize=16)
def name_filters(file: str) -> tuple[NameFilter, ...]:
    """Return the lists of `any(word in name for word in words)` in a file, and of such an `or`."""
    tree = tree_of(file)
    lists = dict(_lists(tree))
    found = dict[NameFilter, None]()
    for node in ast.walk(tree):
        one = _of_any(node, lists) or _of_or(node)
        if one is not None:
            found[one] = None
    return tuple(found)[:_MOST]


def _lists(tree: ast.Module) -> Iterator[tuple[str, NameFilter]]:
    """Yield the names of lists of words, of variables and of settings, with the list."""
    for node in ast.walk(tree):
        for name, value in _named(node):
            one = _filter_of(value)
            if one is not None:
                yield name, one


def _named(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield values that get a name: of a variable, an attribute, an argument or a key."""
    match node:
        case (
            ast.Assign(targets=[target], value=value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
        ):
            name = _name_of(target)
            if name is not None:
                yield name, value
        case ast.FunctionDef(args=ast.arguments(args=given, defaults=[_, *_] as defaults)):
            for argument, default in zip(given[-len(defaults) :], defaults, strict=True):
                yield argument.arg, default
        case ast.keyword(arg=str(name), value=value):
            yield name, value
        case ast.Dict():
            yield from _items(node)


def _items(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def _name_of(node: ast.expr) -> str | None:
    """Return the name of a variable, an attribute, or a key such as `config["no_decay"]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return None


def _of_any(node: ast.AST, lists: dict[str, NameFilter]) -> NameFilter | None:
    match node:
        case ast.Call(
            func=ast.Name(id="any"),
            args=[
                ast.GeneratorExp(
                    elt=ast.Compare(left=ast.Name(id=word), ops=[ast.In()]),
                    generators=[ast.comprehension(target=ast.Name(id=target), iter=words, ifs=[])],
                )
            ],
        ) if word == target:
            name = _name_of(words)
            return _filter_of(words) if name is None else lists.get(name)
    return None


def _of_or(node: ast.AST) -> NameFilter | None:
    """Return the words of `"norm" in name or "bias" in name`."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=values):
            words = list[str]()
            names = set[str]()
            for value in values:
                match value:
                    case ast.Compare(
                        left=ast.Constant(value=str(word)),
                        ops=[ast.In()],
                        comparators=[ast.Name(id=name)],
                    ):
                        words.append(word)
                        names.add(name)
                    case _:
                        return None
            return NameFilter(node.lineno, tuple(words)) if len(names) == 1 else None
    return None


def _filter_of(value: ast.expr) -> NameFilter | None:
    match value:  # the setting of a dataclass
        case ast.Call(keywords=[ast.keyword(arg="default_factory", value=ast.Lambda(body=made))]):
            value = made
    if not isinstance(value, ast.List | ast.Tuple | ast.Set) or not value.elts:
        return None
    words = [one.value for one in value.elts if isinstance(one, ast.Constant)]
    texts = tuple(word for word in words if isinstance(word, str))
    return NameFilter(value.lineno, texts) if len(texts) == len(value.elts) else None
