"""Finds functions that would update a copy of a network, and that nothing calls."""

import ast
import itertools
from collections.abc import Iterator

_WRITES = frozenset({"add_", "copy_", "lerp_", "mul_", "set_"})
_PLAIN_BASES = frozenset({"Module", "object"})
_DECORATORS = frozenset({"no_grad", "inference_mode", "staticmethod"})


def uncalled_updates(tree: ast.Module, *, is_script: bool) -> Iterator[ast.FunctionDef]:
    """Yield the functions that write to one of two networks' parameters and are named nowhere else.

    Libraries may call a method of a class that is derived from theirs. A function of a module may
    be there for other scripts. A method may leave the loop to such a function, of its own name too.

    Args:
        tree: A file.
        is_script: Whether it is the script itself.
    """
    own = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    loops = {one.name for one in functions if any(map(_is_update, ast.walk(one)))}
    bodies = [one.body for one in own if {*map(_last, one.bases)} <= _PLAIN_BASES]
    updates = [
        one
        for one in itertools.chain(*bodies, tree.body if is_script else [])
        if isinstance(one, ast.FunctionDef)
        and {*map(_last, one.decorator_list)} <= _DECORATORS
        and any(_is_update(node) or _calls(node, loops) for node in ast.walk(one))
    ]
    if updates:
        named = {name for node in ast.walk(tree) for name in _names(node)}
        yield from (one for one in updates if one.name not in named or _names_only_loop(tree, one))


def _calls(node: ast.AST, functions: set[str]) -> bool:
    """Return whether a node calls one of several functions by its plain name."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) in functions


def _names_only_loop(tree: ast.Module, update: ast.FunctionDef) -> bool:
    """Return whether only a method itself names its name, for a function that has it, too."""
    if update in tree.body:
        return False
    everywhere, inside = (
        sum(name == update.name for node in ast.walk(one) for name in _names(node))
        for one in (tree, update)
    )
    return everywhere == inside and any(_calls(node, {update.name}) for node in ast.walk(update))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node uses, those in strings among them."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.alias):
        yield node.name


def _last(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return _last(value.func)
    return value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")


def _is_update(node: ast.AST) -> bool:
    """Return whether a loop over the parameters of two networks writes to those of one."""
    # `zip` without a call is a variable of the script, such as postal codes.
    if not (isinstance(node, ast.For) and isinstance(node.iter, ast.Call)):
        return False
    pairs = [ast.unparse(one) for one in node.iter.args] if _last(node.iter) == "zip" else []
    return (
        len(pairs) == 2
        and all("parameters()" in one for one in pairs)
        and any(_is_write(inner) for statement in node.body for inner in ast.walk(statement))
    )


def _is_write(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Attribute) and one.attr == "data" for one in node.targets)
    return isinstance(node, ast.Call) and _last(node.func) in _WRITES
