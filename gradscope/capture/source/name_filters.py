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
    """Yield the variables that are lists of words, with the list."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                one = _filter_of(value)
                if one is not None:
                    yield name, one
            case ast.FunctionDef(args=ast.arguments(args=given, defaults=[_, *_] as defaults)):
                for argument, default in zip(given[-len(defaults) :], defaults, strict=True):
                    one = _filter_of(default)
                    if one is not None:
                        yield argument.arg, one


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
            return lists.get(words.id) if isinstance(words, ast.Name) else _filter_of(words)
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
    if not isinstance(value, ast.List | ast.Tuple | ast.Set) or not value.elts:
        return None
    words = [one.value for one in value.elts if isinstance(one, ast.Constant)]
    texts = tuple(word for word in words if isinstance(word, str))
    return NameFilter(value.lineno, texts) if len(texts) == len(value.elts) else None
